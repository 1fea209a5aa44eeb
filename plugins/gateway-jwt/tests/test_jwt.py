"""The kit for hooks, what makes a token valid, and how often the issuer is asked."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from importlib.metadata import entry_points
from typing import Any, get_args

import msgspec
import pytest
from gateway_jwt import Algorithm, JwtHook, key_sets
from joserfc import jwt
from joserfc.jwk import ECKey, OctKey, OKPKey, RSAKey

from gateway import Identity, Upstream
from gateway.errors import GatewayError
from gateway.testing import Reply, Seen, background_upstream, check_hook

KEY = ECKey.generate_key("P-256", parameters={"kid": "one", "use": "sig"})
OTHER = ECKey.generate_key("P-256", parameters={"kid": "one"})
LATER = ECKey.generate_key("P-256", parameters={"kid": "two"})
RSA = RSAKey.generate_key(2048, parameters={"kid": "rsa"})


class Issuer:
    """An issuer's server."""

    def __init__(self) -> None:
        self.keys: list[Any] = [KEY, RSA]
        self.url = ""
        self.is_away = False
        self.reads = 0

    def __call__(self, seen: Seen) -> Reply:
        if self.is_away:
            return Reply.error(500, "away")
        if seen.path.endswith("/.well-known/openid-configuration"):
            return Reply.json({"issuer": self.url, "jwks_uri": f"{self.url}/keys"})
        self.reads += 1
        return Reply.json({"keys": [*(key.as_dict(private=False) for key in self.keys), {"kty": "oct", "k": "AAAA"}]})


@pytest.fixture
def issuer() -> Iterator[Issuer]:
    found = Issuer()
    with background_upstream(found) as url:
        found.url = url
        yield found


def options(issuer: Issuer, /, **more: Any) -> Any:
    given = {"issuer": issuer.url, "audience": "gw", "account": "staff", **more}
    return msgspec.convert(given, JwtHook.Options)


def claims(issuer: Issuer, **more: Any) -> dict[str, Any]:
    return {"iss": issuer.url, "aud": ["gw", "x"], "sub": "alice", "exp": int(time.time()) + 600, **more}


def token(issuer: Issuer, *, key: Any = KEY, alg: str = "ES256", kid: str | None = "one", **more: Any) -> str:
    header = {"alg": alg} if kid is None else {"alg": alg, "kid": kid}
    return jwt.encode(header, {k: v for k, v in claims(issuer, **more).items() if v is not None}, key, algorithms=[alg])


def ask(issuer: Issuer, /, *tokens: str, **more: Any) -> list[Identity | None]:
    """What one hook says of these tokens, one after the other."""

    async def answers() -> list[Identity | None]:
        upstream = Upstream()
        hook = JwtHook(options(issuer, **more), upstream)
        try:
            return [await hook.authenticate(one) for one in tokens]
        finally:
            await upstream.close()

    return asyncio.run(answers())


def test_hook_conforms(issuer: Issuer) -> None:
    check_hook(JwtHook, options={"issuer": issuer.url, "audience": "gw", "account": "staff"})


def test_gateway_finds_the_plugin_by_its_entry_point() -> None:
    (point,) = entry_points(group="gateway", name="jwt")
    assert point.load().JwtHook is JwtHook


def test_a_valid_token_names_its_subject(issuer: Issuer) -> None:
    [found] = ask(issuer, token(issuer, name="Alice"), name_claim="name", limits={"rpm": 5, "models": ["m"]})
    assert found is not None
    assert (found.account, found.subject, found.name) == ("staff", "alice", "Alice")
    assert found.limits == {"rpm": 5, "models": ("m",)} and found.expires is not None


def test_keys_of_other_kinds_and_single_audiences_are_good(issuer: Issuer) -> None:
    found = ask(issuer, token(issuer, key=RSA, alg="RS256", kid="rsa"), token(issuer, aud="gw"))
    assert all(found)


@pytest.mark.parametrize(
    "wrong",
    [
        {"key": OTHER},
        {"iss": "https://other"},
        {"iss": None},
        {"aud": "x"},
        {"aud": None},
        {"exp": 1000},
        {"exp": None},
        {"exp": "never"},
        {"nbf": 32503680000},
        {"sub": None},
        {"sub": ""},
        {"sub": 7},
        {"sub": "caf\u00e9"},
        {"sub": "x" * 513},
        {"kid": None},
        {"kid": "three"},
    ],
    ids=str,
)
def test_a_token_that_is_not_valid_names_nobody(issuer: Issuer, wrong: Any) -> None:
    assert ask(issuer, token(issuer, **wrong)) == [None]


def test_a_token_may_not_choose_its_algorithm(issuer: Issuer) -> None:
    secret = OctKey.import_key(str(KEY.as_dict(private=False)["x"]))
    forged = jwt.encode({"alg": "HS256", "kid": "one"}, claims(issuer), secret)
    head, body, _ = token(issuer).split(".")
    none = "eyJhbGciOiJub25lIn0"
    tokens = (forged, f"{none}.{body}.", f"{head}.{body}.", token(issuer, key=RSA, alg="RS512", kid="rsa"))
    assert ask(issuer, *tokens) == [None] * 4


@pytest.mark.filterwarnings("ignore:EdDSA is deprecated")  # identity providers still sign with it
@pytest.mark.parametrize("alg", get_args(Algorithm))
def test_each_algorithm_that_is_offered_works(issuer: Issuer, alg: str) -> None:
    curves = {"ES384": "P-384", "ES512": "P-521", "ES256": "P-256"}
    key: Any = RSA
    if alg == "EdDSA":
        key = OKPKey.generate_key("Ed25519", parameters={"kid": "rsa"})
    elif alg in curves:
        key = ECKey.generate_key(curves[alg], parameters={"kid": "rsa"})
    issuer.keys = [key]
    assert all(ask(issuer, token(issuer, key=key, alg=alg, kid="rsa"), algorithms=[alg]))


def test_a_claim_chooses_among_the_accounts_that_are_named(issuer: Issuer) -> None:
    mapping = {"account": "", "account_claim": "tenant", "accounts": {"a": "acme"}}
    found = ask(issuer, *(token(issuer, tenant=one) for one in ("a", "acme", None, ["a"])), **mapping)
    assert [one and one.account for one in found] == ["acme", None, None, None]


def test_required_values_are_among_those_of_the_claim(issuer: Issuer) -> None:
    scopes = ("llm", "read llm", ["llm"], "llms", "read", 7, None)
    found = ask(issuer, *(token(issuer, scope=one) for one in scopes), require={"scope": "llm"})
    assert [one is not None for one in found] == [True, True, True, False, False, False, False]


def test_the_keys_are_read_once_and_again_for_a_new_one(issuer: Issuer, monkeypatch: pytest.MonkeyPatch) -> None:
    assert all(ask(issuer, *[token(issuer)] * 5)) and issuer.reads == 1
    unknown = [token(issuer, key=LATER, kid=f"k{number}") for number in range(20)]
    assert ask(issuer, *unknown) == [None] * 20 and issuer.reads == 2, "many unknown ids make no more questions"
    monkeypatch.setattr(key_sets, "AGAIN_AFTER", 0.0)

    async def rotated() -> Any:
        upstream = Upstream()
        hook = JwtHook(options(issuer), upstream)
        try:
            before = await hook.authenticate(token(issuer))
            issuer.keys = [LATER]
            after = await hook.authenticate(token(issuer, key=LATER, kid="two"))
            return before, after, await hook.authenticate(token(issuer))
        finally:
            await upstream.close()

    before, after, old = asyncio.run(rotated())
    assert before and after and old is None


def test_old_keys_are_used_while_the_issuer_is_away(issuer: Issuer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_sets, "AGAIN_AFTER", 0.0)
    monkeypatch.setattr(key_sets, "FRESH", 0.0)

    async def away() -> Any:
        upstream = Upstream()
        hook = JwtHook(options(issuer), upstream)
        try:
            await hook.authenticate(token(issuer))
            issuer.is_away = True
            return await hook.authenticate(token(issuer))
        finally:
            await upstream.close()

    assert asyncio.run(away())
    with pytest.raises(GatewayError):  # a failure: 503, and no 401
        ask(issuer, token(issuer))


@pytest.mark.parametrize(
    "wrong",
    [
        {"account": ""},
        {"account_claim": "tenant"},
        {"account": "", "account_claim": "tenant"},
        {"issuer": "http://login.example.com"},
        {"jwks_url": "http://login.example.com/keys"},
        {"algorithms": ["HS256"]},
        {"algorithms": []},
    ],
    ids=str,
)
def test_wrong_options_are_refused(issuer: Issuer, wrong: Any) -> None:
    with pytest.raises((ValueError, msgspec.ValidationError)):
        JwtHook(options(issuer, **wrong), None)  # type: ignore[arg-type]


def test_metadata_of_another_issuer_is_not_believed(issuer: Issuer) -> None:
    good = token(issuer)
    asked, issuer.url = issuer.url, "http://127.0.0.1:1"
    with pytest.raises(GatewayError):
        ask(issuer, good, issuer=asked)
