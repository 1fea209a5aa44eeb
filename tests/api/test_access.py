"""Who may do what, and what everyone else is told: keys, permissions, paths, methods, and the order of the checks."""

from __future__ import annotations

import io
from itertools import product
from typing import Any
from urllib.parse import urlsplit

import pytest

from gateway.accounts.accounts import Accounts
from gateway.accounts.key_record import CreatedKey
from gateway.accounts.keys import Keys
from gateway.amounts import NANO
from gateway.api.routes import PATHS, PREFIXES
from gateway.testing import FakeUpstream
from tests.hostile.raw import connection

from .conftest import Client

CHAT = {"model": "m1", "messages": [{"role": "user", "content": "Hi"}]}
UNAUTHORIZED = {
    "error": {
        "message": "Missing or invalid API key",
        "type": "invalid_request_error",
        "param": None,
        "code": "invalid_api_key",
    }
}
FORBIDDEN = {
    "error": {
        "message": "Model not permitted",
        "type": "invalid_request_error",
        "param": "model",
        "code": "model_not_permitted",
    }
}


OF_ONE_ANSWER = ("X-Request-ID", "Date")
HAS_SPACE = "The API key has white space around it, such as a line end. Send the key alone"
ENDPOINTS = sorted({path for path in PATHS if path.startswith("/v1/")})


async def ask(client: Client, method: str, path: str, **options: Any) -> tuple[Any, Any]:
    """One request; the response and its JSON."""
    async with client.request(method, path, **options) as response:
        return response, await response.json()


@pytest.mark.parametrize(
    "headers",
    [
        {"X": "no header at all"},
        {"Authorization": ""},
        {"Authorization": "Bearer"},
        {"Authorization": "Bearer "},
        {"Authorization": "Basic c2stYTpi"},
        {"Authorization": "Bearer not-a-key"},
        {"Authorization": "Bearer sk-"},
        {"Authorization": "Bearer sk-unknown"},
        {"Authorization": "sk-unknown"},
        {"Authorization": "Bearer sk-" + "a" * 510},
        {"Authorization": "Bearer sk-a b"},
        {"api-key": "sk-unknown"},
        {"x-api-key": "sk-unknown"},
        {"x-goog-api-key": "sk-unknown"},
        {"x-api-key": "not-a-key"},
    ],
)
async def test_bad_credentials_get_401_on_every_route(client: Client, headers: dict[str, str]) -> None:
    for method, path in [
        ("POST", "/v1/chat/completions"),
        ("GET", "/v1/models"),
        ("GET", "/v1/models/m1"),
        ("GET", "/v1/no/such/path"),
        ("DELETE", "/v1/models/m1"),
    ]:
        response, body = await ask(client, method, path, headers=headers)
        assert response.status == 401, path
        if "x-goog-api-key" in headers and path.startswith("/v1/models"):  # a client of Google
            assert body["error"]["details"][0]["reason"] == UNAUTHORIZED["error"]["code"]
        else:
            assert body == UNAUTHORIZED
        assert response.headers["WWW-Authenticate"] == "Bearer"


async def test_every_route_except_the_root_requires_a_key(client: Client) -> None:
    for path in (*PATHS, *(f"{prefix}x" for prefix in PREFIXES), "/v1", "/v1/nope"):
        async with client.request("GET", path, headers={"X": "y"}) as response:
            assert response.status == (200 if path == "/" else 401), path


async def test_401_is_decided_before_the_body_is_read(client: Client) -> None:
    """A megabyte that never comes must not be waited for."""
    headers = {"Authorization": "Bearer sk-unknown", "Content-Length": "1000000"}
    response, body = await ask(client, "POST", "/v1/chat/completions", headers=headers, data=b"{")
    assert (response.status, body) == (401, UNAUTHORIZED)


async def test_scheme_is_case_insensitive_and_spaces_may_be_several(client: Client, api_key: CreatedKey) -> None:
    for value in (f"bearer {api_key.text}", f"BEARER   {api_key.text}"):
        response, _ = await ask(client, "GET", "/v1/models", headers={"Authorization": value})
        assert response.status == 200


@pytest.mark.holds("api.md#api-1")
@pytest.mark.parametrize("header", ["x-api-key", "x-goog-api-key", "api-key"])
async def test_header_of_another_api_is_an_alternative_on_every_path(
    client: Client, api_key: CreatedKey, header: str
) -> None:
    for path in ("/v1/models", "/v1/models/m1", "/v1/balance"):
        response, _ = await ask(client, "GET", path, headers={header: api_key.text})
        assert response.status == 200, path
    response, body = await ask(client, "POST", "/v1/chat/completions", headers={header: api_key.text}, json=CHAT)
    assert (response.status, body["object"]) == (200, "chat.completion")


@pytest.mark.parametrize(
    ("path", "headers", "status"),
    [
        ("/v1/models", {"Authorization": "{}", "x-api-key": "sk-unknown"}, 200),
        ("/v1/models", {"Authorization": "Bearer sk-unknown", "x-api-key": "{}"}, 401),
        ("/v1/models", {"Authorization": "Bearer sk-unknown", "x-api-key": "{}", "anthropic-version": "x"}, 200),
        ("/v1/models", {"Authorization": "{}", "x-api-key": "sk-unknown", "anthropic-version": "x"}, 401),
        ("/v1/models", {"x-api-key": "{}", "api-key": "sk-unknown"}, 200),
        ("/v1/models", {"x-api-key": "sk-unknown", "api-key": "{}"}, 401),
        ("/v1/balance?key={}", {"X": "y"}, 401),
        ("/v1/models?key={}", {"X": "y"}, 200),
        ("/v1/models?key=sk-unknown", {"Authorization": "{}"}, 200),
    ],
)
async def test_one_of_several_keys_counts(
    client: Client, api_key: CreatedKey, path: str, headers: dict[str, str], status: int
) -> None:
    sent = {
        name: text.replace("{}", f"Bearer {api_key.text}" if name == "Authorization" else api_key.text)
        for name, text in headers.items()
    }
    response, _ = await ask(client, "GET", path.replace("{}", api_key.text), headers=sent)
    assert response.status == status


@pytest.mark.parametrize("model", ["secret", "no-such-model", "M1", " m1"])
async def test_disabled_and_unknown_models_give_the_same_403(
    client: Client, upstream: FakeUpstream, model: str
) -> None:
    response, body = await client.chat(model=model)
    assert (response.status, body) == (403, FORBIDDEN)
    assert not upstream.seen


async def test_headers_of_a_403_do_not_tell_a_disabled_model_from_an_unknown_one(client: Client) -> None:
    """The time to refuse is longer for a model that exists: its price, its tokens and its targets are looked up."""
    found = []
    for model in ("secret", "no-such-model"):
        response, _ = await client.chat(model=model, messages=[{"role": "user", "content": "word " * 10_000}])
        assert response.status == 403
        found.append({name: value for name, value in response.headers.items() if name not in OF_ONE_ANSWER})
    assert found[0] == found[1]
    assert "openai-processing-ms" not in found[0]


async def test_models_can_be_allowed_and_denied_one_by_one_for_an_account(client: Client, accounts: Accounts) -> None:
    await accounts.allow("acme", ["secret"])
    assert (await client.chat(model="secret"))[0].status == 200
    await accounts.deny("acme", ["m1"])
    assert (await client.chat(model="m1"))[0].status == 403


async def test_disabled_account_is_refused_with_403(client: Client, accounts: Accounts) -> None:
    await accounts.disable("acme")
    response, body = await client.chat()
    assert response.status == 403
    assert body["error"]["code"] == "insufficient_permissions"


async def test_key_restricted_to_models_lists_and_uses_only_those(client: Client, keys: Keys) -> None:
    key = await keys.create("acme", name="narrow", models=["org/m:1"])
    client.headers = {**client.headers, "Authorization": f"Bearer {key.text}"}
    _, body = await ask(client, "GET", "/v1/models")
    assert [record["id"] for record in body["data"]] == ["org/m:1"]
    assert (await client.chat(model="m1"))[0].status == 403
    assert (await client.chat(model="org/m:1"))[0].status == 200


async def test_empty_balance_is_429_that_sdks_do_not_retry(
    client: Client, accounts: Accounts, keys: Keys, upstream: FakeUpstream
) -> None:
    await accounts.create("poor", balance=1)
    key = await keys.create("poor", name="k")
    client.headers = {**client.headers, "Authorization": f"Bearer {key.text}"}
    response, body = await client.chat()
    assert response.status == 429
    assert body["error"]["type"] == "insufficient_quota"
    assert body["error"]["code"] == "credit_balance_exhausted"
    assert response.headers["x-should-retry"] == "false"
    assert "Retry-After" not in response.headers
    assert not upstream.seen


async def test_concurrency_and_rates_of_a_key_are_enforced_with_their_headers(
    client: Client, keys: Keys, accounts: Accounts
) -> None:
    key = await keys.create("acme", name="slow", rpm=2)
    client.headers = {**client.headers, "Authorization": f"Bearer {key.text}"}
    response, _ = await client.chat()
    assert response.headers["x-ratelimit-limit-requests"] == "2"
    assert response.headers["x-ratelimit-remaining-requests"] == "1"
    await client.chat()
    response, body = await client.chat()
    assert response.status == 429
    assert body["error"]["type"] == "requests"
    assert 1 <= int(response.headers["Retry-After"]) <= 60
    assert int(response.headers["retry-after-ms"]) <= int(response.headers["Retry-After"]) * 1000
    assert (await accounts.show("acme")).balance > 9 * NANO


async def test_key_is_refused_before_the_body_is_validated(client: Client, keys: Keys, api_key: CreatedKey) -> None:
    await ask(client, "GET", "/v1/models")  # the worker knows whose key it is from now on
    await keys.revoke(api_key.id)
    for method, path in [("POST", "/v1/chat/completions"), ("GET", "/v1/nope"), ("PUT", "/v1/models")]:
        response, body = await ask(client, method, path, data=b"not json")
        assert (response.status, body) == (401, UNAUTHORIZED), path


async def test_permission_is_refused_before_the_model_is_described(client: Client) -> None:
    response, body = await client.chat(model="secret", max_tokens=1, response_format={"type": "text"}, n=1)
    assert (response.status, body) == (403, FORBIDDEN)


async def test_unknown_path_is_404_and_wrong_method_405_with_allow(client: Client) -> None:
    response, body = await ask(client, "GET", "/v1/nope")
    assert (response.status, body["error"]["code"]) == (404, "unknown_url")
    response, body = await ask(client, "GET", "/elsewhere")
    assert (response.status, body["error"]["code"]) == (404, "unknown_url")
    for method, path, allow in [
        ("GET", "/v1/chat/completions", "POST"),
        ("PATCH", "/v1/chat/completions", "POST"),
        ("DELETE", "/v1/models/m1", "GET, HEAD"),
        ("POST", "/v1/models", "GET, HEAD"),
        ("OPTIONS", "/v1/models", "GET, HEAD"),
    ]:
        response, body = await ask(client, method, path)
        assert (response.status, body["error"]["code"]) == (405, "method_not_allowed"), (method, path)
        assert response.headers["Allow"] == allow
        assert body["error"]["type"] == "invalid_request_error"


async def test_only_enabled_models_are_listed_in_sorted_order(client: Client) -> None:
    response, body = await ask(client, "GET", "/v1/models")
    assert body["object"] == "list"
    assert [record["id"] for record in body["data"]] == ["capped", "m1", "org/m:1", "two"]
    record = body["data"][1]
    assert record["object"] == "model"
    assert record["owned_by"] == "system"
    assert isinstance(record["created"], int)
    assert record["shutdown_date"] is None
    assert response.headers["Content-Type"] == "application/json"
    assert (await ask(client, "GET", "/v1/models/"))[1] == body


@pytest.mark.parametrize("path", ["/v1/models/org%2Fm:1", "/v1/models/org%2Fm%3A1", "/v1/models/org/m:1"])
async def test_model_ids_with_slashes_are_found_encoded_and_raw(client: Client, path: str) -> None:
    response, body = await ask(client, "GET", path)
    assert response.status == 200
    assert body["id"] == "org/m:1"


async def test_disabled_and_unknown_models_give_the_same_404(client: Client) -> None:
    answers = [await ask(client, "GET", f"/v1/models/{name}") for name in ("secret", "nothing")]
    assert [response.status for response, _ in answers] == [404, 404]
    assert answers[0][1] == answers[1][1]
    assert answers[0][1]["error"]["code"] == "model_not_found"


async def test_claude_clients_get_the_model_list_in_their_format(client: Client) -> None:
    headers = {**client.headers, "anthropic-version": "2023-06-01"}
    _, body = await ask(client, "GET", "/v1/models", headers=headers)
    assert body["has_more"] is False
    assert body["data"][0]["type"] == "model"
    assert body["first_id"] == "capped"


async def test_root_route_needs_no_key(client: Client) -> None:
    response, body = await ask(client, "GET", "/", headers={"X": "y"})
    assert response.status == 200
    assert body["object"] == "gateway"


async def test_client_request_id_is_echoed_if_it_is_printable(client: Client) -> None:
    response, _ = await ask(client, "GET", "/v1/models", headers={**client.headers, "X-Client-Request-Id": "mine-1"})
    assert response.headers["X-Client-Request-Id"] == "mine-1"
    headers = {**client.headers, "X-Client-Request-Id": "x" * 513}
    response, _ = await ask(client, "GET", "/v1/models", headers=headers)
    assert "X-Client-Request-Id" not in response.headers


async def test_body_with_another_media_type_than_json_is_415(client: Client) -> None:
    headers = {**client.headers, "Content-Type": "text/plain"}
    response, body = await ask(client, "POST", "/v1/chat/completions", headers=headers, data=b"{}")
    assert (response.status, body["error"]["code"]) == (415, "unsupported_content_type")


async def test_body_over_the_limit_is_413(client: Client) -> None:
    response, body = await ask(client, "POST", "/v1/chat/completions", data=io.BytesIO(b" " * (33 * 2**20)))
    assert (response.status, body["error"]["code"]) == (413, "request_too_large")
    assert response.headers["x-should-retry"] == "false"


AROUND = ("{}\r", "{}\n", "{}\r\r", "{}\x0b", "{}\x0c", "\x0b{}", "{}\xa0", "\ufeff{}")


@pytest.mark.holds("errors.md#errors-1")
@pytest.mark.parametrize(
    "header", ["Authorization: Bearer ", "authorization: bearer ", "api-key: ", "x-api-key: ", "X-Goog-Api-Key: "]
)
async def test_key_with_white_space_around_it_is_refused_with_a_word_about_it(
    client: Client, base_url: str, bearer: dict[str, str], header: str
) -> None:
    key, url = bearer["Authorization"].removeprefix("Bearer "), urlsplit(base_url)
    for path, around in product(ENDPOINTS, AROUND):
        async with connection((str(url.hostname), int(url.port or 0))) as raw:
            lines = f"POST {path} HTTP/1.1\r\nHost: x\r\n{header}{around.format(key)}\r\nContent-Length: 0\r\n\r\n"
            await raw.send(lines.encode())
            answer = await raw.read()
        assert answer is not None, (path, around)
        assert (answer.status, answer.error["message"]) == (401, HAS_SPACE), (path, around)
        assert answer.error["code"] == "invalid_api_key"
        assert key.encode() not in answer.body


async def test_head_with_line_feeds_alone_is_no_key_with_white_space(client: Client, base_url: str) -> None:
    url = urlsplit(base_url)
    async with connection((str(url.hostname), int(url.port or 0))) as raw:
        await raw.send(b"GET /v1/models HTTP/1.1\nHost: x\nAuthorization: Bearer sk-a\nAccept: */*\n\r\n\r\n")
        answer = await raw.read()
    assert answer is not None
    assert answer.status == 400
