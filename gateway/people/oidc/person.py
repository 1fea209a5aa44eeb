"""A person as the claims of an identity provider describe them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from gateway.admin.granted import Granted
from gateway.admin.values import MAX_NAME, checked_name, normal_email
from gateway.config.oidc_settings import OidcSettings
from gateway.errors import InvalidValue

VERIFIED = (True, "true", 1, "1")  # some providers send a text or a number, against the specification


class Person(Struct, frozen=True):
    """Who has signed in at a provider."""

    provider: str
    issuer: str
    subject: str
    email: str  # normalised; empty if it is not verified
    name: str
    granted: Granted

    def __repr__(self) -> str:
        return f"Person(provider={self.provider!r})"


def person_of(provider: str, oidc: OidcSettings, claims: Mapping[str, Any], granted: Granted) -> Person:
    """The person of checked claims."""
    email = claims.get("email")
    is_verified = claims.get(oidc.email_verified_claim) in VERIFIED
    return Person(provider, oidc.issuer, claims["sub"], _normal(email) if is_verified else "", _name(claims), granted)


def _normal(email: object) -> str:
    if not isinstance(email, str):
        return ""
    try:
        return normal_email(email)
    except InvalidValue:
        return ""


def _name(claims: Mapping[str, Any]) -> str:
    name = claims.get("name")
    if not isinstance(name, str):
        return ""
    try:
        return checked_name(name[:MAX_NAME])
    except InvalidValue:
        return ""
