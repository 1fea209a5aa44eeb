"""[console] and [mail]: where people find the console, and how they get e-mail."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct, field

LOCAL_CONSOLE = "http://127.0.0.1:8081"  # of links, if `public_url` is empty


class ConsoleSettings(Struct, frozen=True, kw_only=True):
    """[console]: the address of the console in links."""

    public_url: str = ""

    @property
    def base_url(self) -> str:
        """The address before the paths of links, without a slash at its end."""
        return self.public_url.rstrip("/") or LOCAL_CONSOLE


class MailSettings(Struct, frozen=True, kw_only=True):
    """[mail]: the SMTP server; without a host no e-mail is sent."""

    host: str = ""
    port: Annotated[int, Meta(ge=1, le=65_535)] = 587
    sender: str = field(default="", name="from")
    user: str = ""
    password: str = ""  # a reference; `Settings.mail_password` is the Secret
    starttls: bool = True
