"""The page of a provider: its credentials, circuits, calls, last failures and models, and nothing that is secret."""

from __future__ import annotations

import time

import msgspec
import pytest

from gateway.admin.machine_state import MachineState
from gateway.admin.machines import Machine, announce
from gateway.billing.call_record import CallRecord
from gateway.billing.usage import Usage
from gateway.errors.attempt_answer import AttemptAnswer
from gateway.inference.recent_failures import RecentFailures
from gateway.routing.circuit_sync import HASH, CircuitEvent
from tests.admin_api.both_databases import database_address, database_url
from tests.console.conftest import OpenConsole
from tests.console.history import ago, history

__all__ = ["database_address", "database_url"]
MODELS = """
[providers.fake]
plugin = "fake"

[providers.vendor]
plugin = "openai"
preset = "openai"
base_url = "https://hidden-host.example/v1"
credentials = [{ api_key = "env:VENDOR_ONE" }, { api_key = "env:VENDOR_TWO" }]

[models.first]
targets = [{ provider = "vendor", model = "upstream-first", cost = { input = 0.5, output = 1 } }, { provider = "fake" }]
price = { input = 1, output = 2.5, per_request = 0.01, currency = "USD" }

[models.other]
provider = "fake"
free = true
"""


def record(request_id: str, outcome: str = "ok") -> CallRecord:
    """The end of a call of acme."""
    names = (request_id, "chat", "acme", "key_1", "first", "vendor", outcome)
    return CallRecord(*names, 200, Usage(), 0, 0, 0, 2, 1.5, None, True, "first")


def failed(provider: str, code: str, status: int = 0) -> AttemptAnswer:
    """An attempt that failed."""
    return AttemptAnswer.of(provider, "first", code, status=status, seconds=0.25)


@pytest.fixture(autouse=True)
def secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VENDOR_ONE", "sk-first-secret")
    monkeypatch.setenv("VENDOR_TWO", "sk-second-secret")


@pytest.mark.holds("console.md#providers-1")
async def test_page_has_the_state_of_each_credential_the_calls_and_the_models_with_prices(console: OpenConsole) -> None:
    async with console(models=MODELS) as c:
        store = c.services.store.store
        account = await history(c)
        for number in range(4):
            outcome = "upstream_error" if number == 3 else "ok"
            account.call(ago(minutes=2), 5, provider="vendor", model="first", outcome=outcome, first_token_ms=120)
        account.call(ago(minutes=2), 5, provider="fake", model="other")
        account.flush()
        events = [
            CircuitEvent("w", "vendor", 1, cause="credit", seconds=60.0, at=time.time()),
            CircuitEvent("w", "vendor", 0, "upstream-first", "failures", 60.0, time.time()),
        ]
        for event in events:
            await store.link(HASH).call("HSET", HASH, event.field, msgspec.json.encode(event))
        await announce(store, Machine("1", "one", "a", "1.0", state=MachineState(upstream_calls={"vendor": 3})))
        await c.services.attention.refresh()
        shown = await (await c.as_("eva", role="viewer")).get("/site/providers/vendor")
        for text in (
            "vendor 2 not called",
            "In progress 3 0 of 2 targets in use",
            "Calls 4 since",
            "Failed 25 % 1 call",
            "1 1 model not called –",
            "2 not used its prepaid credit is gone",
            "first → upstream-first 2 of 2 targets not used",
            "4 25 %",
            "1.00 cost 0.50",
            "2.50 cost 1.00",
            "request 0.01 each",
        ):
            assert text in shown.text, (text, shown.text)
        for secret in ("sk-first-secret", "VENDOR_ONE", "hidden-host"):
            assert secret not in shown.html


@pytest.mark.holds("console.md#providers-2")
async def test_last_failures_have_status_code_time_and_a_link_to_the_request(console: OpenConsole) -> None:
    async with console(models=MODELS) as c:
        failures = RecentFailures(c.services.store.store)
        failures.note(record("req_1"), [failed("vendor", "slow_down", 429)])
        failures.note(record("req_2", "upstream_timeout"), [failed("fake", "upstream_error", 502)])
        await failures.send()
        viewer = await c.as_("eva", role="viewer")
        shown = await viewer.get("/site/providers/vendor")
        first, second = shown.text.index("req_2"), shown.text.index("req_1")
        assert first < second
        assert "slow_down 429 250 ms first req_1 served by another attempt" in shown.text
        assert "upstream_timeout – 1.50 s first req_2" in shown.text
        assert 'href="/accounts/acme/usage/req_1"' in shown.html
        assert "upstream_error 502" in (await viewer.get("/site/providers/fake")).text


async def test_list_and_home_and_models_lead_to_the_page_of_each_provider(console: OpenConsole) -> None:
    async with console(models=MODELS) as c:
        viewer = await c.as_("eva", role="viewer")
        for page in ("/site/providers", "/site", "/site/models"):
            html = (await viewer.get(page)).html
            assert 'href="/site/providers/vendor"' in html and 'href="/site/providers/fake"' in html, page
        assert "No attempt failed in the last 7 days" in (await viewer.get("/site/providers/fake")).text


async def test_provider_that_is_no_longer_configured_has_a_page_while_it_has_calls(console: OpenConsole) -> None:
    async with console(models=MODELS) as c:
        account = await history(c)
        account.call(ago(minutes=2), 5, provider="former one", model="first")
        account.flush()
        viewer = await c.as_("eva", role="viewer")
        shown = await viewer.get("/site/providers")
        assert 'href="/site/providers/former%20one"' in shown.html and "not configured" in shown.text
        assert "former one not configured" in (await viewer.get("/site/providers/former%20one")).text
        await viewer.get("/site/providers/nobody", 404)
