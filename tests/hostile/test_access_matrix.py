"""Every route with every method and every kind of key; and the order in which a request's faults are found."""

from __future__ import annotations

import datetime
import io
from typing import Any

import pytest

from gateway.accounts.accounts import Accounts
from gateway.accounts.keys import Keys
from gateway.amounts import NANO
from gateway.api.endpoints.responses import StoredResponseHandler
from gateway.api.handler import UnknownKeyedPathHandler, allowed_methods
from gateway.api.routes import PATHS, PREFIXES, find_route
from gateway.store import Store
from gateway.testing import FakeUpstream

from .conftest import Client

METHODS = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]
NOTHING = (UnknownKeyedPathHandler, StoredResponseHandler)  # paths that never exist, whatever the method
ROUTES = [*PATHS, *(f"{prefix}m1" for prefix in PREFIXES), "/v1", "/v1/", "/v1/nope", "/nope"]


async def ask(client: Client, method: str, path: str, key: str | None, **options: Any) -> tuple[int, Any]:
    """One request; its status and JSON, None for an empty body."""
    headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {key}"} if key is not None else {})
    async with client.request(method, path, headers=headers, **options) as response:
        if response.status >= 400:
            assert response.headers["Content-Type"] == "application/json"
            assert response.headers["x-request-id"].startswith("req_")
        return response.status, await response.json() if await response.read() else None


def code_of(body: Any) -> str:
    """The code of an error in any of the shapes: OpenAI's, Anthropic's or Google's."""
    error = body["error"]
    if "request_id" in body:
        return str(error["details"]["error_code"])
    return str(error["details"][0]["reason"] if "details" in error else error["code"])


async def credentials(accounts: Accounts, keys: Keys, store: Store) -> dict[str, tuple[str | None, int]]:
    """A key of each bad kind, and the status it is answered with."""
    revoked = await keys.create("acme", name="revoked")
    await keys.revoke(revoked.id)
    await accounts.create("closed", balance=NANO)
    closed = await keys.create("closed", name="k")
    await accounts.disable("closed")
    soon = datetime.datetime.now(datetime.UTC) + datetime.timedelta(hours=1)
    expired = await keys.create("acme", name="expired", expires=soon)
    await store.client.hset(f"{{a:acme}}:k:{expired.id}", "exp", 1)
    return {
        "none": (None, 401),
        "malformed": ("sk-", 401),
        "no key at all": ("hello", 401),
        "unknown": ("sk-" + "u" * 43, 401),
        "revoked": (revoked.text, 401),
        "expired": (expired.text, 401),
        "disabled account": (closed.text, 403),
    }


@pytest.mark.slow
@pytest.mark.parametrize("known", [False, True])
async def test_every_route_refuses_an_invalid_key_for_any_method(
    client: Client, accounts: Accounts, keys: Keys, store: Store, upstream: FakeUpstream, known: bool
) -> None:
    """Also where the worker remembers whose key it was."""
    bad = await credentials(accounts, keys, store)
    for key, _ in bad.values() if known else ():
        await ask(client, "GET", "/v1/models", key)
    for path in ROUTES:
        open_to_all = not path.startswith(("/v1", "/v2"))
        for method in METHODS:
            for kind, (key, status) in bad.items():
                answered, body = await ask(client, method, path, key, data=b"not json" if method == "POST" else None)
                case = (method, path, kind, answered, body)
                if open_to_all:
                    assert answered in ({200, 405} if path == "/" else {404}), case
                    continue
                assert answered == status, case
                if method != "HEAD":
                    code = "invalid_api_key" if status == 401 else "insufficient_permissions"
                    assert code_of(body) == code, case
    assert not upstream.seen


async def test_valid_key_gets_405_for_methods_that_a_route_does_not_have(client: Client, api_key: Any) -> None:
    for path in ROUTES:
        route, _ = find_route(path)
        for method in METHODS:
            status, _ = await ask(client, method, path, api_key.text)
            if "nope" in path or path.rstrip("/") == "/v1" or route.handler in NOTHING:
                assert status == 404, (method, path)
            elif method in allowed_methods(route.handler):
                assert status != 405, (method, path)
            else:
                assert status == 405, (method, path)


GOOD = b'{"model": "m1", "messages": [{"role": "user", "content": "Hi"}]}'
SECRET_MODEL = GOOD.replace(b"m1", b"secret")
UNKNOWN_MODEL = GOOD.replace(b"m1", b"nobody-knows")
BAD_SHAPE = b'{"model": "m1", "messages": [{"role": "user", "content": "Hi"}], "temperature": 9}'
BAD_JSON = b'{"model": "m1"'
# Requests that are wrong in several ways, and the error of the first check that finds one.
WRONG = [
    # route and method before content type, JSON, shape and model
    (BAD_JSON, "text/plain", "/v1/nope", "POST", (404, "unknown_url")),
    (BAD_JSON, "text/plain", "/v1/models", "POST", (405, "method_not_allowed")),
    # content type before JSON before shape
    (BAD_JSON, "text/plain", "/v1/chat/completions", "POST", (415, "unsupported_content_type")),
    (BAD_SHAPE, "text/plain", "/v1/chat/completions", "POST", (415, "unsupported_content_type")),
    (BAD_SHAPE[:-1], "application/json", "/v1/chat/completions", "POST", (400, "invalid_json")),
    # shape before model
    (BAD_SHAPE.replace(b"m1", b"nobody-knows"), "application/json", "/v1/chat/completions", "POST",
     (400, "decimal_above_max_value")),
    (BAD_SHAPE.replace(b"m1", b"secret"), "application/json", "/v1/chat/completions", "POST",
     (400, "decimal_above_max_value")),
    (UNKNOWN_MODEL, "application/json", "/v1/chat/completions", "POST", (403, "model_not_permitted")),
    (SECRET_MODEL, "application/json", "/v1/chat/completions", "POST", (403, "model_not_permitted")),
]  # fmt: skip


@pytest.mark.parametrize("key", ["good", "unknown", "revoked", "closed", "spent"])
async def test_earlier_checks_are_reported_first(
    client: Client, accounts: Accounts, keys: Keys, store: Store, upstream: FakeUpstream, key: str
) -> None:
    """The key comes before everything; rates and money come after everything else."""
    bad = await credentials(accounts, keys, store)
    await accounts.create("broke", balance=1)
    text, refusal = {
        "good": ((await keys.create("acme", name="good")).text, None),
        "spent": ((await keys.create("broke", name="k", rpm=1)).text, None),
        "unknown": (bad["unknown"][0], (401, "invalid_api_key")),
        "revoked": (bad["revoked"][0], (401, "invalid_api_key")),
        "closed": (bad["disabled account"][0], (403, "insufficient_permissions")),
    }[key]
    for body, media, path, method, expected in WRONG:
        headers = {"Authorization": f"Bearer {text}", "Content-Type": media}
        async with client.request(method, path, headers=headers, data=body) as response:
            found = response.status, (await response.json())["error"]["code"]
        assert found == (refusal or expected), (body, media, path)
    assert not upstream.seen


async def test_permission_is_checked_before_rate_and_rate_before_balance(
    client: Client, accounts: Accounts, keys: Keys, upstream: FakeUpstream
) -> None:
    await accounts.create("slim", balance=60_000)
    key = (await keys.create("slim", name="k", rpm=1)).text
    status, _ = await ask(client, "POST", "/v1/chat/completions", key, data=GOOD[:-1] + b', "max_tokens": 1}')
    assert status == 200
    asked = len(upstream.seen)
    dear = GOOD[:-1] + b', "max_tokens": 99999}'
    status, body = await ask(client, "POST", "/v1/chat/completions", key, data=dear.replace(b"m1", b"secret"))
    assert (status, body["error"]["code"]) == (403, "model_not_permitted")
    status, body = await ask(client, "POST", "/v1/chat/completions", key, data=dear)
    assert (status, body["error"]["code"]) == (429, "rate_limit_exceeded")
    patient = (await keys.create("slim", name="patient")).text
    status, body = await ask(client, "POST", "/v1/chat/completions", patient, data=dear)
    assert (status, body["error"]["code"]) == (429, "credit_balance_exhausted")
    assert len(upstream.seen) == asked


async def test_size_is_checked_after_the_key_and_before_validation(client: Client, api_key: Any) -> None:
    big = 33 * 2**20
    assert (await ask(client, "POST", "/v1/chat/completions", api_key.text, data=io.BytesIO(b" " * big)))[0] == 413
    assert (await ask(client, "POST", "/v1/chat/completions", "sk-nobody", data=io.BytesIO(b" " * big)))[0] == 401
