"""Bad input gets a clear error and changes nothing."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.admin_api.handler import logged_path

CREDIT = "/accounts/acme/credits"
KEY = {"Idempotency-Key": "k"}
BAD: list[tuple[str, str, Any, str, str]] = [
    # method, path, body, code, a part of the message
    ("POST", CREDIT, {"amount": "1.0000000001"}, "invalid_value", "amount"),
    ("POST", CREDIT, {"amount": "1e3"}, "invalid_value", "amount"),
    ("POST", CREDIT, {"amount": "NaN"}, "invalid_value", "amount"),
    ("POST", CREDIT, {"amount": "Infinity"}, "invalid_value", "amount"),
    ("POST", CREDIT, {"amount": "99999999999"}, "invalid_value", "amount"),
    ("POST", CREDIT, {"amount": "0"}, "invalid_value", "changes nothing"),
    ("POST", CREDIT, {"amount": "-5"}, "invalid_value", "take money away"),
    ("POST", CREDIT, {"amount": 5}, "invalid_type", "expected a string"),
    ("POST", CREDIT, {}, "missing_required_parameter", "'amount'"),
    ("POST", CREDIT, {"amount": "5", "ammount": "6"}, "unknown_parameter", 'nearest: "amount"'),
    ("POST", CREDIT, {"amount": "5", "note": "a\nb"}, "invalid_value", "printable"),
    ("POST", CREDIT, [], "invalid_json", "JSON object"),
    ("POST", "/accounts/acme/refunds", {"request_id": "req_x", "amount": "0"}, "invalid_value", "cannot be refunded"),
    ("POST", "/accounts", {"name": "Upper"}, "invalid_value", "no account name"),
    ("POST", "/accounts", {"name": "new", "group": "vipp"}, "invalid_value", 'nearest: "vip"'),
    ("POST", "/accounts", {"name": "acme"}, "already_exists", "exists already"),
    ("POST", "/accounts/acme/deny", {"models": ["fake-chatt"]}, "invalid_value", 'nearest: "fake-chat"'),
    ("POST", "/accounts/acme/allow", {"models": []}, "empty_array", "models"),
    ("PATCH", "/accounts/acme/limits", {"rpm": 0}, "integer_below_min_value", "rpm"),
    ("PATCH", "/accounts/acme/limits", {"monthly": "1e1"}, "invalid_value", "monthly"),
    ("POST", "/accounts/acme/keys", {"every": "month"}, "invalid_value", "needs a budget"),
    ("POST", "/accounts/acme/keys", {"expires": "2020-01-01T00:00:00Z"}, "invalid_value", "passed already"),
    ("POST", "/accounts/acme/keys", {"expires": "2030-01-01T00:00:00"}, "invalid_value", "expires"),
    ("POST", "/accounts/acme/keys", {"addresses": ["somewhere"]}, "invalid_value", "address"),
    ("POST", "/users", {"email": "nobody"}, "invalid_value", "e-mail"),
    ("POST", "/tokens", {"name": "x", "scopes": ["root"]}, "invalid_value", "Supported values"),
    ("POST", "/tokens", {"name": "x", "scopes": ["config"], "account": "acme"}, "invalid_value", "config"),
    ("GET", "/accounts?limit=0", None, "invalid_value", "limit"),
    ("GET", "/accounts?limit=1001", None, "invalid_value", "limit"),
    ("GET", "/accounts?limit=x", None, "invalid_value", "limit"),
    ("GET", "/accounts?limit=1e1", None, "invalid_value", "'1e1' is no whole number"),
    ("GET", "/accounts?limit=5.0", None, "invalid_value", "limit"),
    ("GET", "/accounts?limit=5%0A", None, "invalid_value", "limit"),
    ("GET", "/accounts?limit=%D9%A5", None, "invalid_value", "limit"),
    ("POST", CREDIT, {"amount": "5\n"}, "invalid_value", "amount"),
    ("POST", CREDIT, {"amount": "\u0665"}, "invalid_value", "amount"),
    ("POST", "/accounts/acme/refunds", {"request_id": "req_x", "amount": "5\n"}, "invalid_value", "amount"),
    ("GET", "/accounts?limit=1&limit=2", None, "invalid_value", "2 times"),
    ("GET", "/accounts?limt=1", None, "unknown_parameter", 'nearest: "limit"'),
    ("GET", "/accounts?cursor=nonsense", None, "invalid_value", "cursor"),
    ("GET", "/keys?unused_since=yesterday", None, "invalid_value", "unused_since"),
    ("POST", "/accounts/acme/disable", {"now": True}, "invalid_value", "no body"),
]


@pytest.mark.holds("admin-api.md#requests-and-answers-2", "security.md#money-2")
async def test_bad_requests_get_an_error_and_change_nothing(api) -> None:
    async with api() as a:
        await a.as_operator()
        before = await a.get("/accounts")
        for method, path, body, code, text in BAD:
            answer = await a.ask(method, path, body, headers=KEY)
            assert 400 <= answer.status < 500, (method, path, body, answer.document)
            assert answer.error["code"] == code, (method, path, body, answer.document)
            assert text in answer.error["message"], (method, path, body, answer.document)
        assert await a.get("/accounts") == before
        for path in ("/keys", "/users", "/audit-trail?object=account"):
            assert (await a.get(path))["data"] == []


async def test_malformed_json_is_refused(api) -> None:
    async with api() as a:
        await a.as_operator()
        for raw in (b"{", b"\xff", b"[" * 5000, b'{"name": "a", "name": NaN}', b"null"):
            answer = await a.ask("POST", "/accounts", raw=raw)
            assert (answer.status, answer.error["code"]) == (400, "invalid_json"), raw


@pytest.mark.holds("admin-api.md#requests-and-answers-1", "security.md#money-2")
async def test_member_that_a_body_has_twice_is_refused_and_named(api) -> None:
    long = b'"' + b"x" * 300_000 + b'"'
    async with api() as a:
        await a.as_operator()
        before = await a.get("/accounts")
        for method, path, raw, name in (
            ("POST", CREDIT, b'{"amount": "1", "amount": "1000"}', "amount"),
            ("POST", CREDIT, b'{"amount": "1", "am\\u006funt" : "1000"}', "amount"),
            ("POST", CREDIT, b'{"amount": "1", "note": "a", "note": "b"}', "note"),
            ("PATCH", "/accounts/acme/limits", b'{"rpm":1,"rpm":1000000000}', "rpm"),
            ("PUT", "/accounts/acme/prices/fake-chat", b'{"price": {"input": "1", "input": "0"}}', "input"),
            ("POST", CREDIT, b'{"amount": "1", "note": ' + long + b', "amount": "2"}', "amount"),
        ):
            answer = await a.ask(method, path, raw=raw, headers=KEY)
            assert (answer.status, answer.error["code"]) == (400, "invalid_json"), raw[:60]
            assert f"the key '{name}' more than once" in answer.error["message"]
        assert await a.get("/accounts") == before


async def test_path_is_served_with_and_without_the_root_path(api) -> None:
    async with api() as a:
        await a.as_operator()
        expected = await a.get("/accounts")
        a.url += "/gw"
        assert await a.get("/accounts") == expected
        a.url += "/gw"
        assert (await a.ask("GET", "/accounts")).status == 404


def test_logged_paths_have_no_email_addresses() -> None:
    assert logged_path("/admin/v1/users/ann@example.com/link") == "/admin/v1/users/*/link"
    assert logged_path("/admin/v1/accounts/acme/members/ann%40example.com") == "/admin/v1/accounts/acme/members/*"
    assert logged_path("/admin/v1/accounts/acme") == "/admin/v1/accounts/acme"


@pytest.mark.parametrize("path", ["/accounts/%2e%2e", "/accounts/a%2Fb", "/accounts/%ff", "/accounts/" + "a" * 5000])
async def test_strange_names_in_a_path_lead_nowhere(api, path: str) -> None:
    async with api() as a:
        await a.as_operator()
        assert (await a.ask("GET", path)).status == 404
