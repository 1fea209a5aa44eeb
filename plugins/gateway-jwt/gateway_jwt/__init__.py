"""Bearer tokens of an OpenID Connect issuer in place of keys: each subject gets a key of the gateway.

::

    [server]
    authenticate = ["sso"]

    [hooks.sso]
    plugin = "jwt"
    timeout = 10.0
    issuer = "https://login.example.com/realms/main"
    audience = "model-gateway"
    account = "staff"

Sharp edge: a token says who calls, and the gateway's own records say what the subject may do.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal

from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jws import JWSRegistry, extract_compact
from msgspec import Meta, Struct

from gateway import Authenticate, Hook, Identity, hookimpl
from gateway.errors import GatewayError

from .key_sets import KeySets, check_url

if TYPE_CHECKING:
    from gateway import Upstream

_SUBJECT = re.compile(r"[\x20-\x7e]{1,512}", re.ASCII)

Algorithm = Literal["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"]
Limit = Annotated[int, Meta(ge=1, le=2**53)]


class Limits(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Limits of the key of a new subject."""

    rpm: Limit | None = None
    tpm: Limit | None = None
    concurrency: Limit | None = None
    models: tuple[str, ...] | None = None
    endpoints: tuple[str, ...] | None = None


class JwtHook(Hook, Authenticate):
    """Checks tokens by the public keys of their issuer."""

    name = "jwt"

    class Options(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
        """The keys under [hooks.NAME]."""

        issuer: Annotated[str, Meta(min_length=1)]
        audience: Annotated[str, Meta(min_length=1)]
        jwks_url: str = ""  # of the keys; empty: as the metadata of the issuer says
        algorithms: Annotated[tuple[Algorithm, ...], Meta(min_length=1)] = ("RS256", "ES256")
        account: str = ""  # of all subjects
        account_claim: str = ""  # or the claim whose value `accounts` has
        accounts: dict[str, str] = {}
        subject_claim: Annotated[str, Meta(min_length=1)] = "sub"
        name_claim: str = ""  # whose value is the name of a new key
        require: dict[str, str] = {}  # values that claims must have, or have among theirs
        leeway: Annotated[int, Meta(ge=0, le=300)] = 30  # seconds between the clocks
        limits: Limits = Limits()

    def __init__(self, options: Options, upstream: Upstream) -> None:
        super().__init__(options, upstream)
        if bool(options.account) == bool(options.account_claim):
            raise ValueError("set account, or account_claim with accounts")
        if options.account_claim and not options.accounts:
            raise ValueError("accounts says which account a value of account_claim means")
        for url in (options.issuer, options.jwks_url or options.issuer):
            try:
                check_url(url)
            except GatewayError:
                raise ValueError("issuer and jwks_url begin with https://") from None
        self._keys = KeySets(upstream, issuer=options.issuer, jwks_url=options.jwks_url)
        self._claims = jwt.JWTClaimsRegistry(
            leeway=options.leeway,
            iss={"essential": True, "value": options.issuer},
            aud={"essential": True, "value": options.audience},
            exp={"essential": True},
        )
        self._limits = {
            name: value for name in Limits.__struct_fields__ if (value := getattr(options.limits, name)) is not None
        }
        self._registry = JWSRegistry(algorithms=list(options.algorithms))

    async def authenticate(self, credential: str) -> Identity | None:
        """The subject of a valid token; an Upstream error if the issuer's keys cannot be read."""
        header = _header(credential)
        if header is None or header.get("alg") not in self.options.algorithms:
            return None
        key_id = header.get("kid", "")
        if not isinstance(key_id, str) or len(key_id) > 512:
            return None
        keys = await self._keys.key(key_id)
        if keys is None:
            return None
        try:
            token = jwt.decode(credential, keys, registry=self._registry)
            self._claims.validate(token.claims)
        except (JoseError, ValueError, TypeError):
            return None
        return self._identity(token.claims)

    def _identity(self, claims: Mapping[str, Any]) -> Identity | None:
        options = self.options
        subject, expires = claims.get(options.subject_claim), claims.get("exp")
        if not isinstance(subject, str) or _SUBJECT.fullmatch(subject) is None:
            return None
        if not isinstance(expires, (int, float)) or isinstance(expires, bool):
            return None
        if not all(_has(claims.get(name), value) for name, value in options.require.items()):
            return None
        account = options.account or options.accounts.get(str(claims.get(options.account_claim)), "")
        name = claims.get(options.name_claim, "") if options.name_claim else ""
        if not account:
            return None
        shown = name if isinstance(name, str) and name.isprintable() else ""
        return Identity(account=account, subject=subject, name=shown, expires=float(expires), limits=self._limits)


def _header(credential: str) -> Mapping[str, Any] | None:
    """The header of a token; None for anything else."""
    if credential.count(".") != 2:
        return None
    try:
        return extract_compact(credential.encode()).headers()
    except (JoseError, ValueError, TypeError, RecursionError):
        return None


def _has(claim: Any, value: str) -> bool:
    """Whether a claim has a value, or has it among its values; a text of `scope` has words."""
    if isinstance(claim, str):
        return claim == value or value in claim.split()
    return isinstance(claim, list) and value in claim


@hookimpl
def register_hooks(register: Callable[[type[Hook]], None]) -> None:
    register(JwtHook)
