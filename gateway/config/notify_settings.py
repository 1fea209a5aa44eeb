"""[notify]: which events the gateway reports, by webhook and by e-mail."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Annotated, Literal, get_args
from urllib.parse import urlsplit

from msgspec import Meta, Struct

from gateway.config.loopback import is_loopback
from gateway.config.secret import Secret, SecretError
from gateway.config.values import Amount, Duration, duration
from gateway.config.variables import Reference
from gateway.email_address import is_address

EventKind = Literal[
    "balance.low",
    "balance.exhausted",
    "key.expiring",
    "budget.80",
    "budget.100",
    "circuit.opened",
    "credential.refused",
    "settlement.set_aside",
    "importer.behind",
]
KINDS: tuple[EventKind, ...] = get_args(EventKind)
#: The events about one account, which its owners may get.
ACCOUNT_KINDS: frozenset[str] = frozenset(
    {"balance.low", "balance.exhausted", "key.expiring", "budget.80", "budget.100"}
)
REFERENCES = ("env:", "file:")


class NotifySettings(Struct, frozen=True, kw_only=True):
    """[notify]: where events go."""

    webhook: Reference = ""  # a URL or a reference to one
    secrets: tuple[Reference, ...] = ()  # every message has a signature by each
    mail_to: tuple[str, ...] = ()
    events: tuple[EventKind, ...] = ()  # empty: all
    mail_events: tuple[EventKind, ...] = ()  # empty: those of `events`
    owners: bool = False
    balance_low: Amount = 0
    importer_behind: Annotated[float, Meta(ge=10, le=604_800)] = 600.0
    keep: Duration = "3d"

    @property
    def keep_trying(self) -> timedelta:
        """How long the delivery of an event is attempted."""
        return duration(self.keep)

    @property
    def is_set_up(self) -> bool:
        """Whether events go anywhere."""
        return bool(self.webhook or self.mail_to or self.owners)

    @property
    def webhook_kinds(self) -> frozenset[str]:
        """The events that the webhook gets."""
        return frozenset(self.events or KINDS) if self.webhook else frozenset()

    @property
    def mail_kinds(self) -> frozenset[str]:
        """The events that `mail_to` gets."""
        return frozenset(self.mail_events or self.events or KINDS) if self.mail_to else frozenset()

    @property
    def owner_kinds(self) -> frozenset[str]:
        """The events that the owners of an account get."""
        return ACCOUNT_KINDS & frozenset(self.events or KINDS) if self.owners else frozenset()

    @property
    def kinds(self) -> frozenset[str]:
        """The events that go anywhere."""
        return self.webhook_kinds | self.mail_kinds | self.owner_kinds


def url_problem(url: str) -> str:
    """Why a webhook cannot be at this URL; empty if it can. The text never has the URL: it may be a secret."""
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        return "it is not a URL"
    if parts.scheme not in ("http", "https") or not host or parts.username is not None or not url.isprintable():
        return "expected https://HOST/PATH without a user and password"
    if parts.scheme == "http" and not is_loopback(host):
        return "expected https: plain http is possible on this machine only, as in http://127.0.0.1:8000/hook"
    return ""


def notify_problems(notify: NotifySettings, *, has_mail: bool, literals: bool) -> Iterator[tuple[str, str]]:
    """What is wrong with [notify]: the key and the message."""
    if notify.webhook.startswith(REFERENCES):
        yield from _reference_problem("webhook", notify.webhook, literals=literals)
    elif notify.webhook and (problem := url_problem(notify.webhook)):
        yield "webhook", problem
    if notify.webhook and not notify.secrets:
        yield "secrets", "missing: messages are signed; `gateway notify secret` makes a secret"
    if len(notify.secrets) > 4:
        yield "secrets", "at most 4 secrets sign a message"
    for reference in notify.secrets:
        yield from _reference_problem("secrets", reference, literals=literals)
    if (notify.mail_to or notify.owners) and not has_mail:
        yield "mail_to" if notify.mail_to else "owners", "e-mail needs a server: set host in [mail]"
    for address in notify.mail_to:
        if not is_address(address):
            yield "mail_to", f"{address!r} is no e-mail address"


def _reference_problem(key: str, reference: str, *, literals: bool) -> Iterator[tuple[str, str]]:
    try:
        Secret.parse(reference, literals=literals)
    except SecretError as error:
        yield key, str(error)
