"""[console] and [mail]: the console's own port with the admin API, and how people get e-mail."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct, field

from gateway.config.values import Amount, Port
from gateway.config.variables import Reference


class ConsoleSettings(Struct, frozen=True, kw_only=True):
    """[console]: the port of the console and of the admin API, and what makes their address."""

    enabled: bool = True
    host: Annotated[str, Meta(min_length=1)] = "127.0.0.1"
    port: Port = 8081
    pages: bool = True
    public_url: str = ""
    root_path: str = ""
    api_url: str = ""
    tls_client_ca: str = ""  # a file; `Settings.tls_files` has its path
    public_prices: bool = False
    public_docs: bool = True
    signup: Literal["closed", "invite", "open"] = "closed"
    signup_domains: tuple[str, ...] = ()  # in lower case; empty: all
    signup_account: bool = True
    signup_credit: Amount = 0
    signup_credits_per_day: Annotated[int, Meta(ge=1, le=1_000_000)] = 100  # accounts that begin with it in 24 hours
    signup_group: str = "default"
    signup_limit: Annotated[int, Meta(ge=1, le=10_000)] = 10  # people from one network in 15 minutes


class MailSettings(Struct, frozen=True, kw_only=True):
    """[mail]: the SMTP server; without a host no e-mail is sent."""

    host: str = ""
    port: Annotated[int, Meta(ge=1, le=65_535)] = 587
    sender: str = field(default="", name="from")
    user: str = ""
    password: Reference = ""  # `Settings.mail_password` is the Secret
    starttls: bool = True
