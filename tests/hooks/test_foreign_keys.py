"""`authenticate`: a credential that is no key gets the key of its subject, with all that holds for keys."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from gateway import Identity, errors
from gateway.accounts.accounts import Accounts
from gateway.accounts.keys import Keys
from gateway.hooks import foreign_keys
from gateway.runtime.gateway import Gateway
from tests.api.conftest import settled

from .conftest import Client, Scripted, counted

TOKEN = "eyJhbGciOiJub25lIn0.eyJzdWIiOiJhbGljZSJ9.c2lnbmF0dXJl"
BODY = {"model": "free", "messages": [{"role": "user", "content": "Hi"}]}


@pytest.fixture
def document(document: dict[str, Any]) -> dict[str, Any]:
    return {**document, "server": {"authenticate": ["check"]}}


class Asked:
    """A hook that knows `TOKEN`, and notes what it is asked about."""

    def __init__(self, **identity: Any) -> None:
        self.identity = {"account": "acme", "subject": "alice", **identity}
        self.credentials: list[str] = []

    async def __call__(self, credential: str) -> Any:
        self.credentials.append(credential)
        return Identity(**self.identity) if credential == TOKEN else None


async def call(client: Client, credential: str = TOKEN, header: str = "Authorization") -> tuple[int, Any]:
    headers = {header: f"Bearer {credential}" if header == "Authorization" else credential}
    async with client.request("POST", "/v1/chat/completions", json=BODY, headers=headers) as response:
        return response.status, await response.json()


async def test_a_subject_has_one_key_whose_calls_are_charged(
    client: Client, scripted: type[Scripted], keys: Keys, accounts: Accounts
) -> None:
    asked = scripted.on_credential = Asked(limits={"rpm": 2, "models": ["free"]})
    before = (await accounts.show("acme")).balance

    assert [(await call(client))[0] for _ in range(3)] == [200, 200, 429]

    assert asked.credentials == [TOKEN], "the second call was answered from the cache"
    [key] = [key for key in await keys.list("acme") if key.name == "check: alice"]
    assert (key.rpm, key.models) == (2, ["free"])
    assert (await settled(accounts)).balance < before


async def test_another_credential_of_the_subject_has_the_same_key(
    client: Client, scripted: type[Scripted], keys: Keys
) -> None:
    async def anyone(credential: str) -> Any:
        return Identity(account="acme", subject="bob", name="Bob")

    scripted.on_credential = anyone
    for credential in ("one-token", "another-token"):
        assert (await call(client, credential, "api-key"))[0] == 200
    assert [key.name for key in await keys.list("acme") if key.name != "test"] == ["Bob"]


async def test_a_revoked_subject_stays_revoked(client: Client, scripted: type[Scripted], keys: Keys) -> None:
    scripted.on_credential = Asked()
    assert (await call(client))[0] == 200
    [key] = [key for key in await keys.list("acme") if key.name != "test"]
    await keys.revoke(key.id)
    assert (await call(client))[0] == 401
    scripted.on_credential = Asked(name="again")
    assert (await call(client))[0] == 401
    assert len(await keys.list("acme")) == 2


async def test_a_key_of_the_gateway_never_goes_to_a_hook(
    client: Client, scripted: type[Scripted], bearer: dict[str, str]
) -> None:
    asked = scripted.on_credential = Asked()
    for credential in ("sk-unknown", "SK-unknown", "gwa_token", bearer["Authorization"].split()[1] + "x"):
        assert (await call(client, credential))[0] == 401
    async with client.request("POST", "/v1/chat/completions", json=BODY) as response:
        assert response.status == 200
    assert asked.credentials == []


@pytest.mark.parametrize("credential", ["x" * 8193, "two words", "caf\xe9", ""])
async def test_what_is_no_credential_never_goes_to_a_hook(
    client: Client, scripted: type[Scripted], credential: str
) -> None:
    asked = scripted.on_credential = Asked()
    assert (await call(client, credential, "api-key"))[0] == 401
    assert asked.credentials == []


async def test_the_key_of_a_subject_has_no_text_that_a_caller_can_send(
    client: Client, scripted: type[Scripted]
) -> None:
    scripted.on_credential = Asked()
    assert (await call(client))[0] == 200
    scripted.on_credential = None
    for header in ("Authorization", "api-key"):
        assert (await call(client, "subject check acme alice", header))[0] == 401


async def test_an_unknown_credential_is_asked_about_once_and_costs_a_share_of_its_address(
    client: Client, scripted: type[Scripted], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(foreign_keys, "REFUSALS", 3)
    asked = scripted.on_credential = Asked()
    assert [(await call(client, "unknown"))[0] for _ in range(3)] == [401] * 3
    assert asked.credentials == ["unknown"]
    assert [(await call(client, f"unknown-{number}"))[0] for number in range(4)] == [401, 401, 429, 429]
    assert len(asked.credentials) == 3


async def test_an_expired_credential_is_asked_about_again(
    client: Client, gateway: Gateway, scripted: type[Scripted], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = scripted.on_credential = Asked(expires=time.time() + 1000)
    assert (await call(client))[0] == 200
    monkeypatch.setattr(foreign_keys, "CACHED_FOR", 0.0)
    gateway.foreign_keys._known.clear()
    assert [(await call(client))[0] for _ in range(2)] == [200, 200]
    assert len(asked.credentials) == 3
    scripted.on_credential = Asked(expires=time.time() - 1)
    assert (await call(client))[0] == 401


async def _raises(credential: str) -> Any:
    raise RuntimeError(credential)


async def _refuses(credential: str) -> Any:
    raise errors.InvalidApiKey


def _identity(**wrong: Any) -> Callable[[str], Awaitable[Any]]:
    async def identity(credential: str) -> Any:
        return Identity(**{"account": "acme", "subject": "s", **wrong})

    return identity


@pytest.mark.parametrize(
    ("do", "status"),
    [
        (_raises, 503),
        (_refuses, 401),
        (_identity(account="missing"), 401),
        (_identity(account="a:b"), 503),
        (_identity(subject=""), 503),
        (_identity(subject="x" * 513), 503),
        (_identity(user="a:b"), 503),
        (_identity(limits={"state": "active"}), 503),
        (_identity(limits={"rpm": -1}), 401),
        (_identity(name="a\nb"), 503),
    ],
)
async def test_a_wrong_answer_lets_nobody_in_and_no_log_shows_the_credential(
    client: Client, scripted: type[Scripted], do: Any, status: int, keys: Keys, capfd: Any
) -> None:
    scripted.on_credential = do
    found, answer = await call(client)
    assert found == status
    client_log = "".join(capfd.readouterr())
    assert TOKEN not in client_log and TOKEN not in str(answer)
    assert len(await keys.list("acme")) == 1


async def test_a_run_is_counted(client: Client, gateway: Gateway, scripted: type[Scripted]) -> None:
    scripted.on_credential = Asked()
    assert (await call(client))[0] == 200
    assert counted(gateway)["check", "authenticate", "passed"] == 1.0


class TestWithoutTheSetting:
    @pytest.fixture
    def document(self, document: dict[str, Any]) -> dict[str, Any]:
        return {name: section for name, section in document.items() if name != "server"}

    async def test_a_foreign_credential_is_refused(self, client: Client, scripted: type[Scripted]) -> None:
        asked = scripted.on_credential = Asked()
        assert (await call(client))[0] == 401
        assert asked.credentials == []
