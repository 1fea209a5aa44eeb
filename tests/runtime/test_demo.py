"""What `gateway serve --demo` makes in its store and database, and prints."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from gateway.accounts.pepper import load_pepper
from gateway.admin.actor import command_line
from gateway.admin.outbox import AuditOutbox
from gateway.amounts import NANO
from gateway.config.loader import demo_settings
from gateway.config.settings import Settings
from gateway.ledger.refusal_counts import HOUR, STREAM, read_batches
from gateway.runtime.demo import announce
from gateway.runtime.demo_site import OPERATOR, fill_demo
from gateway.services.services import AdminServices
from gateway.store import Store

ROOT = command_line("root")


@pytest.fixture
def settings(valkey: Path, tmp_path: Path) -> Settings:
    """Those of the demo, on the store of the tests."""
    load_pepper(tmp_path)
    settings = demo_settings(tmp_path)
    return structs.replace(settings, store=structs.replace(settings.store, url=f"unix://{valkey}"))


async def refused(store: Store) -> list[tuple[int, str, str, str, str]]:
    """The labels of the refused requests that wait for the importer."""
    return [count[:5] for _, batch in await read_batches(store, 100) if batch is not None for count in batch.counts]


async def printed(settings: Settings, world: Any, capsys: pytest.CaptureFixture[str]) -> str:
    """What a start prints."""
    await announce(settings, world.store, b"p" * 32, base_url="http://127.0.0.1:8080/v1")
    return capsys.readouterr().out


async def test_account_of_an_older_demo_stays_as_it_is_beside_the_second_one(world: Any, settings: Settings) -> None:
    async with world() as w:
        await w.accounts.create("demo", balance=7 * NANO)
        await fill_demo(settings, w.store)
        assert [line.kind async for line in w.ledger.lines("demo")] == ["open"]
        assert (await w.accounts.show("demo")).balance == 7 * NANO
        partner = [line async for line in w.ledger.lines("demo-partner")]
        assert len(partner) > 100 and partner[-1].balance == 50 * NANO
        assert {line.meta["tags"]["demo"] for line in partner if line.kind == "use"} == {"true"}
        assert {label[1] for label in await refused(w.store)} == {"demo-partner"}
        await w.proved()


async def test_calls_of_two_attempts_have_what_each_answered(world: Any, settings: Settings) -> None:
    async with world() as w:
        await fill_demo(settings, w.store)
        lines = [line async for line in w.ledger.lines("demo-partner") if line.kind == "use"]
        twice = [line for line in lines if line.meta["attempts"] == 2]
        assert {len(line.meta["answers"]) for line in twice} == {2}
        assert all(line.meta["answers"][-1]["code"] == line.meta["outcome"] for line in twice)
        assert all(
            sum(answer["ms"] for answer in line.meta["answers"]) < line.meta["duration_ms"] and line.meta["provider"]
            for line in twice
        )
        assert {line.amount < 0 for line in twice} == {True, False}
        assert not any("answers" in line.meta for line in lines if line.meta["attempts"] == 1)


@pytest.mark.holds("console.md#the-demo-1")
async def test_refused_requests_are_those_that_limits_and_balances_refuse(world: Any, settings: Settings) -> None:
    async with world() as w:
        await fill_demo(settings, w.store)
        labels = await refused(w.store)
        by_account = {name: {label[4] for label in labels if label[1] == name} for name in ("demo", "demo-partner")}
        assert by_account == {
            "demo": {"credit_balance_exhausted"},
            "demo-partner": {"rate_limit_exceeded", "model_not_permitted"},
        }
        assert {label[3] for label in labels if label[4] == "model_not_permitted"} == {""}

        keys = {key.id: key for name in by_account for key in await w.keys.list(name)}
        assert {label[2] for label in labels} <= set(keys)
        limited = {label[2] for label in labels if label[4] == "rate_limit_exceeded"}
        assert [keys[key].name for key in limited] == ["web shop"]
        partner = [line async for line in w.ledger.lines("demo-partner")]
        times = [line.milliseconds for line in partner if line.meta.get("key") in limited]
        most = max(sum(0 <= later - time < 5_000 for later in times) for time in times)
        assert most == keys[limited.pop()].rpm == 6  # as many as the limit admits at once

        lines = [line async for line in w.ledger.lines("demo")]
        assert min(line.balance for line in lines) < max(line.meta["hold"] for line in lines if line.kind == "use")
        assert all(line.balance >= 0 for line in lines)
        [credit, last] = [line for line in lines if line.kind == "topup"]
        dry = {label[0] for label in labels if label[4] == "credit_balance_exhausted"}
        assert max(dry) <= credit.milliseconds // 1000 // HOUR and last.balance == 10 * NANO
        failed = {line.meta["outcome"] for line in (*lines, *partner) if line.kind == "use"} - {"ok", "client_closed"}
        assert failed <= {"upstream_timeout", "upstream_error", "slow_down"}


@pytest.mark.holds("console.md#the-demo-1")
async def test_own_price_is_charged_in_the_last_days_and_is_set_as_an_operator_sets_it(
    world: Any, settings: Settings
) -> None:
    async with world() as w:
        await fill_demo(settings, w.store)
        own = {"fake-writer": {"input": "1.5", "output": "5"}}
        assert (await w.accounts.show("demo-partner")).prices == own
        assert (await w.accounts.show("demo")).prices == {}
        [event] = [event for _, event in await AuditOutbox(w.store).read() if event is not None]
        assert (event.action, event.account, event.after) == ("accounts.price", "demo-partner", own)
        lines = [line async for line in w.ledger.lines("demo-partner") if line.kind == "use"]
        writer = [line for line in lines if line.meta["model"] == "fake-writer"]
        factors = [line.meta.get("price_factor", "") for line in writer]
        assert factors == sorted(factors, reverse=True) and set(factors) == {"0.8", ""}  # first that of the group
        assert len({line.meta["price"] for line in writer}) == 2
        assert {line.meta["price_factor"] for line in lines if line.meta["model"] != "fake-writer"} == {"0.8"}
        await w.proved()


async def test_second_start_adds_no_calls_and_gives_missing_memberships_back(world: Any, settings: Settings) -> None:
    async with world() as w:
        first = await fill_demo(settings, w.store)
        before = await w.dump()
        services = AdminServices(settings, w.store)
        people = await services.people()
        await people.memberships.remove(ROOT, first.user.id, "demo")
        second = await fill_demo(settings, w.store)
        assert second.user.accounts == {"demo": "owner", "demo-partner": "owner"} and second.token != first.token
        after = await w.dump()
        ledgers = [name for name in before if name.endswith(b":lg")]
        assert len(ledgers) == 2
        for name in (*ledgers, STREAM.encode(), b"prices", b"{a:demo}", b"{a:demo-partner}"):
            assert after[name] == before[name]
        await services.close()


async def test_start_without_a_usable_operator_prints_the_key_and_no_link(
    world: Any, settings: Settings, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    async with world() as w:
        first = await printed(settings, w, capsys)
        assert "/sign-in/link?token=" in first and "with the names of the variables that hold keys" in first
        services = AdminServices(settings, w.store)
        people = await services.people()
        await people.users.create(ROOT, "another@example.com", role="operator")
        await people.users.disable(ROOT, (await people.users.find(ROOT, OPERATOR)).id)
        await services.close()
        text = await printed(settings, w, capsys)
        assert "sk-" in text and "token=" not in text and "The user is disabled" in caplog.text


async def test_nothing_is_invented_with_a_configuration_file(
    world: Any, settings: Settings, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with world() as w:
        own = structs.replace(settings, file=str(tmp_path / "gateway.toml"))
        text = await printed(own, w, capsys)
        assert 'account "demo" (balance 10)' in text and "token=" not in text
        assert await w.ledger.accounts() == ["demo"]
        assert [line.kind async for line in w.ledger.lines("demo")] == ["open"]
