"""[oidc.NAME]: identity providers with which people sign in to the console (OpenID Connect)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal
from urllib.parse import urlsplit

from msgspec import Meta, Struct

from gateway.config.loopback import is_loopback
from gateway.config.secret import Secret, SecretError
from gateway.config.toml_reader import Key
from gateway.config.variables import Reference

Scope = Annotated[str, Meta(pattern=r"^[\x21\x23-\x5b\x5d-\x7e]+$(?!\n)")]
Text = Annotated[str, Meta(min_length=1, max_length=256)]


class GrantSettings(Struct, frozen=True, kw_only=True):
    """One entry of `grants`: what a person gets whose claim is, or contains, the value."""

    claim: Text
    value: Text
    account: str = ""
    role: Literal["owner", "member"] = "member"
    site_role: Literal["", "viewer", "operator"] = ""


class OidcSettings(Struct, frozen=True, kw_only=True):
    """[oidc.NAME]: one identity provider."""

    issuer: Text
    client_id: Text
    client_secret: Reference  # `Settings.oidc_secret` is the Secret
    label: Annotated[str, Meta(max_length=40)] = ""
    email_verified_claim: Text = "email_verified"
    scopes: tuple[Scope, ...] = ()
    grants: tuple[GrantSettings, ...] = ()


def issuer_problem(issuer: str) -> str:
    """Why this cannot be an issuer; empty if it can."""
    try:
        parts = urlsplit(issuer)
        host, _ = parts.hostname, parts.port
    except ValueError:
        return "it is not a URL"
    if parts.scheme not in ("http", "https") or not host or parts.username is not None or not issuer.isprintable():
        return "expected https://HOST, with a path if the provider has one"
    if "?" in issuer or "#" in issuer or " " in issuer:
        return "an issuer has no query and no fragment"
    if parts.scheme == "http" and not is_loopback(host):
        return "expected https: plain http is possible on this machine only, as in http://127.0.0.1:9400"
    return ""


def oidc_problems(oidc: OidcSettings, *, literals: bool) -> Iterator[tuple[Key, str]]:
    """What is wrong with one provider: the key below it and the message."""
    if problem := issuer_problem(oidc.issuer):
        yield ("issuer",), problem
    try:
        Secret.parse(oidc.client_secret, literals=literals)
    except SecretError as error:
        yield ("client_secret",), str(error)
    if not oidc.label.isprintable():
        yield ("label",), "expected printable text"
    for index, grant in enumerate(oidc.grants):
        if bool(grant.account) == bool(grant.site_role):
            yield ("grants", index), "expected account or site_role, one of them"
        if grant.claim == "email":
            yield ("grants", index, "claim"), "people may change their e-mail address at a provider: use another claim"
