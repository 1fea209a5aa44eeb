"""What `gateway serve --demo` makes in its store and database, and prints."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from gateway.accounts.pepper import load_pepper
from gateway.admin.actor import command_line
from gateway.admin.services import AdminServices
from gateway.amounts import NANO
from gateway.config.loader import demo_settings
from gateway.config.settings import Settings
from gateway.runtime.demo import announce
from gateway.runtime.demo_site import OPERATOR, furnish

ROOT = command_line("root")


@pytest.fixture
def settings(valkey: Path, tmp_path: Path) -> Settings:
    """Those of the demo, on the store of the tests."""
    load_pepper(tmp_path)
    settings = demo_settings(tmp_path)
    return structs.replace(settings, store=structs.replace(settings.store, url=f"unix://{valkey}"))


async def printed(settings: Settings, world: Any, capsys: pytest.CaptureFixture[str]) -> str:
    """What a start prints."""
    await announce(settings, world.store, b"p" * 32, base_url="http://127.0.0.1:8080/v1")
    return capsys.readouterr().out


async def test_account_of_an_older_demo_stays_as_it_is_beside_the_second_one(world: Any, settings: Settings) -> None:
    async with world() as w:
        await w.accounts.create("demo", balance=7 * NANO)
        await furnish(settings, w.store)
        assert [line.kind async for line in w.ledger.lines("demo")] == ["open"]
        assert (await w.accounts.show("demo")).balance == 7 * NANO
        partner = [line async for line in w.ledger.lines("demo-partner")]
        assert len(partner) > 100 and partner[-1].balance == 50 * NANO
        assert {line.meta["tags"]["demo"] for line in partner if line.kind == "use"} == {"true"}
        await w.proved()


async def test_second_start_adds_no_calls_and_gives_missing_memberships_back(world: Any, settings: Settings) -> None:
    async with world() as w:
        first = await furnish(settings, w.store)
        before = await w.dump()
        services = AdminServices(settings, w.store)
        people = await services.people()
        await people.memberships.remove(ROOT, first.user.id, "demo")
        second = await furnish(settings, w.store)
        assert second.user.accounts == {"demo": "owner", "demo-partner": "owner"} and second.token != first.token
        after = await w.dump()
        ledgers = [name for name in before if name.endswith(b":lg")]
        assert len(ledgers) == 2 and all(after[name] == before[name] for name in ledgers)
        await services.close()


async def test_start_without_a_usable_operator_prints_the_key_and_no_link(
    world: Any, settings: Settings, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    async with world() as w:
        assert "/sign-in/link?token=" in await printed(settings, w, capsys)
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
