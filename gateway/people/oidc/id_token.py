"""Checks ID tokens: signature, issuer, audience, times and nonce (OpenID Connect Core 1.0, 3.1.3.7).

Only algorithms with a public key are accepted, so neither an unsigned token nor one that is signed with the public key
as a shared secret passes.
"""

from __future__ import annotations

import hmac
import math
from base64 import urlsafe_b64decode
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
from joserfc.errors import JoseError
from joserfc.jwk import ECKey, RSAKey
from joserfc.jws import JWSRegistry, deserialize_compact
from msgspec import Struct

from gateway.errors import SignInRefused

Key = RSAKey | ECKey

KEY_TYPES: dict[str, type[Key]] = {"RS": RSAKey, "PS": RSAKey, "ES": ECKey}
ALGORITHMS = tuple(f"{family}{size}" for family in KEY_TYPES for size in (256, 384, 512))
MIN_RSA_BITS = 2048
LEEWAY = 60  # seconds that clocks may differ
MAX_AGE = 600  # seconds; the token was made for this sign-in
MAX_LENGTH = 65_536  # characters
MAX_SUBJECT = 255


class Header(Struct, frozen=True):
    """The protected header, as far as it is used."""

    alg: str
    kid: str | None = None
    crit: Any = None
    b64: bool = True


class Expected(Struct, frozen=True):
    """What a token must say."""

    issuer: str
    client_id: str
    nonce: str
    algorithms: Sequence[str] | None  # that the provider announces


def header_of(token: str) -> Header:
    """The header of a token that is not checked yet; SignInRefused if it is none that can be accepted."""
    try:
        start = token.partition(".")[0] if len(token) <= MAX_LENGTH else ""
        header = msgspec.json.decode(urlsafe_b64decode(start + "=" * (-len(start) % 4)), type=Header)
    except (ValueError, msgspec.DecodeError, RecursionError):
        raise SignInRefused(detail="token") from None
    if header.alg not in ALGORITHMS or header.crit is not None or not header.b64:
        raise SignInRefused(detail="algorithm")
    return header


def candidates(header: Header, keys: Iterable[dict[str, Any]]) -> list[Key]:
    """The keys that may have signed a token: of the right kind, and of its key id if it names one."""
    kind, found = KEY_TYPES[header.alg[:2]], []
    for key in keys:
        fits = key.get("kty") == kind.key_type and key.get("use", "sig") == "sig"
        fits = fits and key.get("alg", header.alg) == header.alg
        if not fits or (header.kid is not None and key.get("kid") != header.kid):
            continue
        try:
            imported = kind.import_key({name: value for name, value in key.items() if name in PUBLIC_PARTS})
        except (JoseError, ValueError, TypeError):
            continue  # the other keys may still do
        if isinstance(imported, ECKey) or imported.raw_value.key_size >= MIN_RSA_BITS:
            found.append(imported)
    return found


PUBLIC_PARTS = frozenset({"kty", "kid", "n", "e", "crv", "x", "y"})


def checked_claims(token: str, header: Header, keys: Iterable[Key], expected: Expected, *, at: float) -> dict[str, Any]:
    """The claims of a token; SignInRefused unless all of them are as they must be at this time, in Unix seconds."""
    if expected.algorithms is not None and header.alg not in expected.algorithms:
        raise SignInRefused(detail="algorithm")
    claims = _claims(_verified_payload(token, header, keys))
    if claims.get("iss") != expected.issuer:
        raise SignInRefused(detail="issuer")
    _check_audience(claims, expected.client_id)
    _check_times(claims, at)
    nonce = claims.get("nonce")
    if not isinstance(nonce, str) or not hmac.compare_digest(_bytes(nonce), _bytes(expected.nonce)):
        raise SignInRefused(detail="nonce")
    subject = claims.get("sub")
    if not isinstance(subject, str) or not 1 <= len(subject) <= MAX_SUBJECT or not subject.isprintable():
        raise SignInRefused(detail="subject")
    return claims


def _verified_payload(token: str, header: Header, keys: Iterable[Key]) -> bytes:
    registry = JWSRegistry(algorithms=[header.alg], strict_check_header=False)
    for key in keys:
        try:
            payload = deserialize_compact(token, key, registry=registry).payload
        except (JoseError, ValueError, TypeError, RecursionError):
            continue
        if payload is not None:
            return payload
    raise SignInRefused(detail="signature")


def _claims(payload: bytes) -> dict[str, Any]:
    try:
        return msgspec.json.decode(payload, type=dict[str, Any])
    except (ValueError, msgspec.DecodeError, RecursionError):
        raise SignInRefused(detail="token") from None


def _check_audience(claims: dict[str, Any], client_id: str) -> None:
    audience, party = claims.get("aud"), claims.get("azp")
    audiences = audience if isinstance(audience, list) else [audience]
    if client_id not in audiences:
        raise SignInRefused(detail="audience")
    if party != client_id and (party is not None or len(audiences) > 1):
        raise SignInRefused(detail="audience")


def _check_times(claims: dict[str, Any], at: float) -> None:
    expires, issued, begins = _time(claims, "exp"), _time(claims, "iat"), claims.get("nbf")
    if expires is None or issued is None or (begins is not None and _time(claims, "nbf") is None):
        raise SignInRefused(detail="times")
    if at >= expires + LEEWAY:
        raise SignInRefused(detail="expired")
    earliest = max(issued, _time(claims, "nbf") or 0.0)
    if earliest > at + LEEWAY or issued < at - MAX_AGE - LEEWAY:
        raise SignInRefused(detail="times")


def _time(claims: dict[str, Any], name: str) -> float | None:
    value = claims.get(name)
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        return None
    try:
        seconds = float(value)
    except OverflowError:
        return None
    return seconds if math.isfinite(seconds) else None


def _bytes(text: str) -> bytes:
    return text.encode(errors="surrogatepass")  # a claim may have a lone surrogate
