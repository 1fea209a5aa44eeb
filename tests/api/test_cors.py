"""Web pages of other origins: which may call, what they may read, and that nothing is sent without the setting."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs

from gateway.api.cors import cors_headers, preflight_headers
from gateway.config.loader import parse
from gateway.config.toml_reader import SettingsError
from gateway.runtime.gateway import Gateway
from tests.api.conftest import Client

PAGE = "https://chat.example.com"
HI: dict[str, Any] = {"model": "m1", "messages": [{"role": "user", "content": "Hi"}]}
PREFLIGHT = {
    "Origin": PAGE,
    "Access-Control-Request-Method": "POST",
    "Access-Control-Request-Headers": "authorization,content-type,x-stainless-lang",
}


def allow(gateway: Gateway, *origins: str) -> None:
    """Set `server.cors_origins`."""
    settings = gateway.settings
    gateway.settings = structs.replace(settings, server=structs.replace(settings.server, cors_origins=origins))


def cors(headers: Any) -> dict[str, str]:
    return {
        name: value for name, value in headers.items() if name.lower().startswith("access-control") or name == "Vary"
    }


async def test_no_header_is_sent_without_the_setting(client: Client) -> None:
    for method, headers in (("GET", {**client.headers, "Origin": PAGE}), ("OPTIONS", PREFLIGHT)):
        async with client.request(method, "/v1/models", headers=headers) as response:
            assert response.status == {"GET": 200, "OPTIONS": 401}[method]
            assert cors(response.headers) == {}


@pytest.mark.holds("api.md#api-3")
async def test_preflight_is_answered_without_a_key(client: Client, gateway: Gateway) -> None:
    allow(gateway, PAGE)
    for path in ("/v1/chat/completions", "/v1beta/models/m1:generateContent", "/chat/completions", "/v1/models"):
        async with client.request("OPTIONS", path, headers=PREFLIGHT) as response:
            assert (response.status, await response.read()) == (204, b"")
            assert response.headers["Access-Control-Allow-Origin"] == PAGE
            assert response.headers["Access-Control-Allow-Headers"] == PREFLIGHT["Access-Control-Request-Headers"]
            assert "POST" in response.headers["Access-Control-Allow-Methods"]
            assert response.headers["Vary"] == "Origin"


async def test_answers_and_errors_can_be_read_by_an_allowed_page_only(client: Client, gateway: Gateway) -> None:
    allow(gateway, PAGE)
    for origin, allowed in ((PAGE, PAGE), ("https://evil.invalid", None), (PAGE + ":8443", None)):
        for path, headers, status in (("/v1/models", client.headers, 200), ("/v1/models", {"X": "y"}, 401)):
            async with client.request("GET", path, headers={**headers, "Origin": origin}) as response:
                assert response.status == status
                assert response.headers.get("Access-Control-Allow-Origin") == allowed
                assert response.headers["Vary"] == "Origin"
        async with client.request("OPTIONS", "/v1/models", headers={**PREFLIGHT, "Origin": origin}) as response:
            assert response.status == (204 if allowed else 401)


async def test_stream_has_the_headers_too(client: Client, gateway: Gateway) -> None:
    allow(gateway, "*")
    headers = {**client.headers, "Origin": PAGE}
    async with client.request("POST", "/v1/chat/completions", headers=headers, json={**HI, "stream": True}) as response:
        assert response.headers["Access-Control-Allow-Origin"] == "*"
        assert "Vary" not in response.headers
        exposed = response.headers["Access-Control-Expose-Headers"].split(", ")
        assert {"x-request-id", "Retry-After", "x-ratelimit-remaining-requests"} <= set(exposed)


def test_odd_names_of_a_preflight_are_not_repeated() -> None:
    for names in ("a\x00b", "x" * 3000, "a, ,b", ""):
        sent = {**PREFLIGHT, "Access-Control-Request-Headers": names}
        found = preflight_headers("OPTIONS", sent, cors_headers(sent, [PAGE]))
        assert found is not None and found["Access-Control-Allow-Headers"] == "Authorization, Content-Type"


@pytest.mark.parametrize("origin", ["chat.example.com", "https://a/b", "https://a, https://b", "", "https://a\n"])
def test_origin_that_no_browser_sends_is_refused(origin: str) -> None:
    with pytest.raises(SettingsError, match="cors_origins"):
        parse({"server": {"cors_origins": [origin]}})
