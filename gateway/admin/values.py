"""What people type, checked and normalised: e-mail addresses and names. InvalidValue for anything else."""

from __future__ import annotations

import re
import unicodedata

from gateway.email_address import MAX_LENGTH, normal_address
from gateway.errors import InvalidValue

MAX_NAME = 100
NO_EMAIL = (
    "This is no e-mail address: before the @ are ASCII letters, digits and signs such as . _ + -, after it a domain;"
    " write an international domain as xn--…"
)

# The form of addresses that were stored before there was `gateway.email_address`.
_LOCAL = re.compile(r"[^@\s\"(),:;<>\[\]\\\x00-\x1f\x7f]{1,64}")
_DOMAIN = re.compile(r"(?=.{1,253}\Z)([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)(\.[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)*", re.A)


def normal_email(text: str) -> str:
    """An address to store, in the form of `gateway.email_address`."""
    try:
        return normal_address(text)
    except ValueError:
        raise InvalidValue(NO_EMAIL, param="email") from None


def known_email(text: str) -> str:
    """An address to look up: as `normal_email`, or in the wider form of before, in which users may still be stored.

    Before the @ it is in lower case and composed, its domain is in ASCII.
    """
    if len(text) <= MAX_LENGTH * 2:
        local, at, domain = text.strip().rpartition("@")
        local, domain = _normal_local(local), _ascii_domain(unicodedata.normalize("NFKC", domain).lower())
        if at and len(local) + len(domain) < MAX_LENGTH and _LOCAL.fullmatch(local) and _DOMAIN.fullmatch(domain):
            return f"{local}@{domain}"
    raise InvalidValue(NO_EMAIL, param="email")


def checked_name(name: str) -> str:
    """A name of at most 100 printable characters, without spaces around it; it may be empty."""
    name = unicodedata.normalize("NFC", name.strip())
    if len(name) > MAX_NAME or not name.isprintable():
        raise InvalidValue(f"A name has at most {MAX_NAME} printable characters", param="name")
    return name


def _normal_local(local: str) -> str:
    """In lower case and composed (NFC); empty if a character outside of ASCII would become one of ASCII."""
    if local.isascii():
        return local.lower()
    normal = unicodedata.normalize("NFC", local)
    if not normal.isprintable() or any(map(_becomes_ascii, local)):
        return ""
    lowered = "".join(lower if len(lower := char.lower()) == 1 else char for char in normal)
    return unicodedata.normalize("NFC", lowered)  # a capital may have no composed form where its small letter has one


def _becomes_ascii(char: str) -> bool:
    """Whether NFC makes it a character of ASCII, such as K of the Kelvin sign."""
    return not char.isascii() and any(map(str.isascii, unicodedata.normalize("NFC", char)))


def _ascii_domain(domain: str) -> str:
    if domain.isascii():
        return domain
    try:
        return domain.encode("idna").decode()
    except UnicodeError:
        return ""
