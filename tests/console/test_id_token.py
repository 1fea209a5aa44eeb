"""ID tokens whose header or claims are not what they should be: a refused sign-in, and nothing else."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from joserfc import jws
from joserfc.jwk import ECKey

from gateway.config.oidc_settings import GrantSettings, OidcSettings
from gateway.errors import SignInRefused
from gateway.people.grants import granted_by
from gateway.people.oidc.id_token import Expected, candidates, checked_claims, header_of
from gateway.people.oidc.person import person_of
from tests.console.identity_provider import encoded

ISSUER = "https://login.example.com"
KEY = ECKey.generate_key("P-256", {"kid": "one"})
EXPECTED = Expected(ISSUER, "gateway", "n0nce", None)
GRANTS = (GrantSettings(claim="groups", value="search", account="acme"),)
OIDC = OidcSettings(issuer=ISSUER, client_id="gateway", client_secret="", grants=GRANTS)
DEEP = "[" * 20_000 + "]" * 20_000
#: JSON texts.
VALUES = (
    "null", "true", "false", "0", "-1", "1.5", "1e308", "-1e308", "1e999", str(10**19), str(10**400), f"-{10**400}",
    "1" * 5000, '""', '"gateway"', '"x\\u0000"', '"\\ud800"', f'"{"x" * 9000}"', "[]", "[[]]", '["gateway"]',
    '["gateway", 1, null]', "[1.5]", "{}", '{"gateway": {}}', DEEP,
)  # fmt: skip
CLAIMS = ("iss", "aud", "azp", "exp", "iat", "nbf", "nonce", "sub", "email", "email_verified", "name", "groups")


def sound(**changes: Any) -> dict[str, Any]:
    now = int(time.time())
    claims = {"iss": ISSUER, "aud": "gateway", "exp": now + 300, "iat": now, "nonce": "n0nce", "sub": "s"}
    return claims | {"email": "ann@example.com", "email_verified": True} | changes


def person(token: str) -> tuple[str, str, bool]:
    """Subject, e-mail, and whether something is given to the person of a token."""
    header = header_of(token)
    keys = candidates(header, [KEY.as_dict(private=False)])
    claims = checked_claims(token, header, keys, EXPECTED, at=time.time())
    found = person_of("corp", OIDC, claims, granted_by(claims, GRANTS))
    return found.subject, found.email, found.granted.is_something


def token_of(payload: str) -> str:
    return jws.serialize_compact({"alg": "ES256", "kid": "one"}, payload, KEY, algorithms=["ES256"])


@pytest.mark.holds("security.md#accounts-and-sessions-5")
@pytest.mark.parametrize("claim", CLAIMS)
def test_claim_of_any_type_is_accepted_or_refused_and_never_an_error(claim: str) -> None:
    outcomes = []
    for value in VALUES:
        payload = json.dumps(sound(**{claim: "VALUE"})).replace('"VALUE"', value)
        try:
            subject, email, gives = person(token_of(payload))
        except SignInRefused as refused:
            outcomes.append(refused.detail)
        else:
            assert isinstance(subject, str) and isinstance(email, str) and not gives
            assert email in ("", "ann@example.com")
            outcomes.append("")
    assert "token" in outcomes  # too deep
    assert any(outcomes) and (claim in ("iss", "iat", "nonce") or "" in outcomes)


def test_times_may_be_fractions_and_the_audience_a_list() -> None:
    now = time.time()
    claims = sound(exp=now + 300.5, iat=now - 0.5, aud=["gateway"])
    assert person(token_of(json.dumps(claims))) == ("s", "ann@example.com", False)
    assert person(token_of(json.dumps(sound(groups=["search", 1, None])))) == ("s", "ann@example.com", True)


@pytest.mark.holds("security.md#accounts-and-sessions-5")
@pytest.mark.parametrize(
    "header",
    [
        f'{{"alg": "ES256", "crit": {DEEP}}}',
        f'{{"alg": "ES256", "x": {DEEP}}}',
        f'{{"alg": {DEEP}}}',
        '{"alg": "ES256", "crit": []}',
        '{"alg": "ES256", "crit": ["b64"], "b64": false}',
        '{"alg": ["ES256"]}',
        '{"alg": "ES256", "kid": 1}',
        '{"alg": "ES256", "b64": 1e999}',
        f'{{"alg": "ES256", "x": {"1" * 5000}}}',
        "[]",
        "null",
    ],
    ids=lambda header: header[:40],
)
def test_header_of_any_form_is_refused(header: str) -> None:
    payload, signature = token_of(json.dumps(sound())).split(".")[1:]
    with pytest.raises(SignInRefused):
        person(f"{encoded(header.encode())}.{payload}.{signature}")
