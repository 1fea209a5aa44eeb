"""Keys that are restricted to endpoints or to client addresses."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs

from gateway.accounts.key_edits import KeyEdits
from gateway.accounts.key_record import CreatedKey
from gateway.accounts.key_scopes import Scopes, check_scopes, networks, read_scopes
from gateway.accounts.keys import Keys
from gateway.errors import KeyRestricted
from gateway.ledger import Ledger
from gateway.runtime.gateway import Gateway
from gateway.store import Store
from tests.api.conftest import Client

HERE, ELSEWHERE = ["127.0.0.0/8"], ["10.0.0.0/8", "2001:db8::/32"]


class Editor:
    """Edits keys of the gateway's store."""

    def __init__(self, store: Store, keys: Keys) -> None:
        self._keys, self._edits = keys, KeyEdits(store, keys)

    async def edit(self, key_id: str, **changes: Any) -> None:
        await self._edits.edit(await self._keys.show(key_id), **changes)


@pytest.fixture
def editor(gateway: Gateway, keys: Keys) -> Editor:
    return Editor(gateway.store, keys)


async def code_of(client: Client, path: str, **options: Any) -> tuple[int, str]:
    async with client.request("POST" if options else "GET", path, **options) as response:
        body = await response.json()
        return response.status, body.get("error", {}).get("code", "")


CHAT = {"model": "m1", "messages": [{"role": "user", "content": "Hi"}]}


async def test_key_is_used_only_from_its_addresses(client: Client, editor: Editor, api_key: CreatedKey) -> None:
    await editor.edit(api_key.id, addresses=HERE)
    assert await code_of(client, "/v1/chat/completions", json=CHAT) == (200, "")
    assert await code_of(client, "/v1/models") == (200, "")
    await editor.edit(api_key.id, addresses=ELSEWHERE)
    for path, options in (
        ("/v1/chat/completions", {"json": CHAT}),
        ("/v1/chat/completions", {"json": CHAT, "headers": {**client.headers, "Idempotency-Key": "once"}}),
        ("/v1/chat/completions", {"json": {"model": "m1"}}),  # refused before its admission
        ("/v1/models", {}),
        ("/v1/balance", {}),
    ):
        assert await code_of(client, path, **options) == (403, "insufficient_permissions")
    await editor.edit(api_key.id, clear=["addresses"])
    assert await code_of(client, "/v1/chat/completions", json=CHAT) == (200, "")


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/models"])
async def test_address_of_a_key_is_the_clients_behind_a_trusted_proxy_only(
    client: Client, editor: Editor, api_key: CreatedKey, gateway: Gateway, path: str
) -> None:
    await editor.edit(api_key.id, addresses=ELSEWHERE)
    options: dict[str, Any] = {"headers": {**client.headers, "X-Forwarded-For": "10.1.2.3"}}
    if path != "/v1/models":
        options["json"] = CHAT

    async def status() -> int:
        async with client.request("POST" if "json" in options else "GET", path, **options) as response:
            await response.read()
            return response.status

    assert await status() == 403
    server = structs.replace(gateway.settings.server, trusted_proxies=("127.0.0.0/8",))
    gateway.settings = structs.replace(gateway.settings, server=server)
    assert await status() == 200


async def test_key_calls_only_its_endpoints(
    client: Client, editor: Editor, api_key: CreatedKey, ledger: Ledger
) -> None:
    await editor.edit(api_key.id, endpoints=["embeddings"])
    response, answer = await client.chat()
    assert (response.status, answer["error"]["message"]) == (403, "This key may not use the endpoint chat")
    assert await code_of(client, "/v1/models") == (200, "")
    assert len([line async for line in ledger.lines("acme")]) == 1  # nothing was held
    await editor.edit(api_key.id, endpoints=["chat"])
    assert (await client.chat())[0].status == 200


async def test_replay_of_a_stored_answer_needs_the_scopes(client: Client, editor: Editor, api_key: CreatedKey) -> None:
    headers = {**client.headers, "Idempotency-Key": "once"}
    assert await code_of(client, "/v1/chat/completions", json=CHAT, headers=headers) == (200, "")
    await editor.edit(api_key.id, addresses=HERE)
    async with client.request("POST", "/v1/chat/completions", json=CHAT, headers=headers) as response:
        assert (response.status, response.headers["Idempotent-Replayed"]) == (200, "true")
    await editor.edit(api_key.id, addresses=ELSEWHERE)
    assert (await code_of(client, "/v1/chat/completions", json=CHAT, headers=headers))[0] == 403


async def test_restricted_key_without_enough_money_gets_a_lowered_limit(
    client: Client, editor: Editor, api_key: CreatedKey
) -> None:
    await editor.edit(api_key.id, endpoints=["chat"], max_cost=20_000_000)
    response, _ = await client.chat()
    assert response.status == 200
    assert 0 < int(response.headers["x-gateway-max-tokens"]) <= 10_000


async def test_call_above_the_most_of_its_key_is_refused_with_400(
    client: Client, editor: Editor, api_key: CreatedKey
) -> None:
    await editor.edit(api_key.id, max_cost=1000)
    response, answer = await client.chat(max_tokens=100)
    assert (response.status, answer["error"]["code"]) == (400, "cost_limit_exceeded")


@pytest.mark.parametrize(
    ("address", "permitted"),
    [
        ("10.1.2.3", True),
        ("::ffff:10.1.2.3", True),
        ("11.0.0.1", False),
        ("2001:db8::7", True),
        ("fe80::1%eth0", False),
        ("2001:db9::7", False),
        ("", False),
        ("unix", False),
    ],
)
def test_addresses_are_matched_in_both_versions(address: str, permitted: bool) -> None:
    text = Scopes(addresses=networks(ELSEWHERE)).text()
    assert read_scopes(text) == Scopes(addresses=networks(ELSEWHERE))
    if permitted:
        check_scopes(text, address)
    else:
        with pytest.raises(KeyRestricted):
            check_scopes(text, address)
