"""SIGHUP: the file as it stands then, for every worker, without a dropped stream; a broken file changes nothing."""

import asyncio
import json
import os
import signal
import subprocess
import sys

import pytest

from tests.polling import ENDS_WITHIN, until
from tests.processes.conftest import Serve, Yard
from tests.processes.served import MODELS, Answer, Served, has_taken, is_alive

ADDED = """
[models.added]
provider = "fake"
price = { input = 1, output = 1 }
"""
WITHOUT_QUICK = MODELS.replace("[models.quick]", "[models.other]")
DEARER = MODELS.replace("price = { input = 1000", "price = { input = 5000", 1)  # of "quick", the first model


async def reloaded(gateway: Served, times: int) -> None:
    """So many workers have said that they have reloaded."""
    await until(lambda: gateway.text.count("configuration reloaded") == times)


@pytest.mark.holds("README.md#operate-it-3", "operations/start.md#signals-3", "operations/start.md#reload-1")
async def test_reload_changes_models_and_prices_on_every_worker_and_drops_no_stream(serve: Serve) -> None:
    gateway = await serve(workers=2)
    streams = await gateway.flowing(6)
    assert (await gateway.chat("added")).status == 403
    gateway.configure(DEARER + ADDED)
    os.kill(gateway.pid, signal.SIGHUP)
    await reloaded(gateway, 2)
    answers = await asyncio.gather(*(gateway.chat("added") for _ in range(20)))
    assert {answer.status for answer in answers} == {200}
    answer = await gateway.chat("quick")
    assert await until(lambda: _charge_of(gateway, answer)) == 5_000_000 + 3 * 2_000_000

    gateway.configure(WITHOUT_QUICK)
    os.kill(gateway.pid, signal.SIGHUP)
    await reloaded(gateway, 4)
    answers = await asyncio.gather(*(gateway.chat("quick") for _ in range(20)))
    assert {answer.status for answer in answers} == {403}
    assert (await gateway.chat("added")).status == 403
    for stream in streams:
        assert (await stream.ended()).whole
    await gateway.proved()


async def test_warnings_about_settings_are_logged_at_the_start_and_at_a_reload(yard: Yard) -> None:
    warning = "groups.free.price_factor: 0 makes every call of the group free"
    gateway = yard.make(MODELS + "\n[groups.free]\nprice_factor = 0\n")
    await gateway.started()
    assert gateway.text.count(warning) == 1
    os.kill(gateway.pid, signal.SIGHUP)
    await reloaded(gateway, 1)
    await until(lambda: gateway.text.count(warning) == 2)  # the supervisor may write after its worker


@pytest.mark.holds("operations/start.md#reload-1")
async def test_broken_file_keeps_the_old_configuration_also_for_a_worker_that_starts_later(serve: Serve) -> None:
    gateway = await serve()
    gateway.configure(MODELS + ADDED)
    os.kill(gateway.pid, signal.SIGHUP)
    await reloaded(gateway, 1)
    gateway.configure(MODELS + '\n[models.worse]\nprovidr = "fake"\n')
    os.kill(gateway.pid, signal.SIGHUP)
    await until(lambda: "reload refused, the old configuration stays" in gateway.text)
    assert f'{gateway.config}: models.worse.providr: unknown key; nearest: \\"provider\\"' in gateway.text
    assert (await gateway.chat()).status == 200
    victim = gateway.workers[0]
    os.kill(victim, signal.SIGKILL)
    await until(lambda: not is_alive(victim))
    assert (await gateway.chat("added")).status == 200, "its successor was briefed with the configuration that holds"
    assert (await gateway.chat("worse")).status == 403

    gateway.configure(MODELS + '\n[plugins]\ndisabled = ["azure"]\n')
    os.kill(gateway.pid, signal.SIGHUP)
    await until(lambda: "plugins has changed, which takes a restart" in gateway.text)
    gateway.config.unlink()
    os.kill(gateway.pid, signal.SIGHUP)
    await until(lambda: "cannot be read" in gateway.text)
    assert (await gateway.chat()).status == 200


async def command(gateway: Served, *words: str) -> subprocess.CompletedProcess[str]:
    """Run `gateway …` beside the gateway."""
    line = [sys.executable, "-m", "gateway", *words, "--config", str(gateway.config)]
    return await asyncio.to_thread(
        subprocess.run, line, capture_output=True, text=True, check=False, timeout=ENDS_WITHIN
    )


GROUP = """
[groups.vip]
rpm = 2
"""


@pytest.mark.holds("operations/start.md#signals-4")
async def test_reload_that_removes_an_unused_group_is_done_and_one_with_accounts_is_refused_unless_it_is_forced(
    serve: Serve,
) -> None:
    gateway = await serve(MODELS + GROUP + "[groups.unused]\n")
    gateway.configure(MODELS + GROUP)
    done = await command(gateway, "reload")
    assert done.returncode == 0, done.stderr
    await reloaded(gateway, 1)
    async with gateway.session() as session:
        await session.accounts.move("test", "vip")
        await session.accounts.allow("test", ["quick"])
    gateway.configure(MODELS)
    os.kill(gateway.pid, signal.SIGHUP)
    await until(lambda: "reload refused, the old configuration stays: groups.vip: no group is named" in gateway.text)
    assert gateway.text.count("configuration reloaded") == 1
    assert [(await gateway.chat()).status for _ in range(3)] == [200, 200, 429]

    refused = await command(gateway, "reload")
    assert (refused.returncode, "1 account is in it (test)" in refused.stderr) == (1, True)
    forced = await command(gateway, "reload", "--force", "--json")
    assert (forced.returncode, json.loads(forced.stdout)) == (0, {"pid": gateway.pid, "forced": True})
    await reloaded(gateway, 2)
    assert (await gateway.chat()).status == 429, "without its group the account has no more than before"


async def test_reload_without_its_secret_or_with_a_serving_provider_out_of_service_is_refused_by_all_workers(
    serve: Serve,
) -> None:
    gateway = await serve(workers=2)
    gateway.configure(MODELS.replace('plugin = "fake"', 'plugin = "fake"\nproxy = "env:NO_SUCH_PROXY"', 1))
    os.kill(gateway.pid, signal.SIGHUP)
    await until(lambda: "providers.fake.proxy: environment variable NO_SUCH_PROXY is not set" in gateway.text)
    assert "reload refused, the old configuration stays" in gateway.text
    assert "configuration reloaded" not in gateway.text
    assert (await gateway.chat()).status == 200

    gateway.configure(MODELS + ADDED.replace("added", "before"))
    os.kill(gateway.pid, signal.SIGHUP)
    await reloaded(gateway, 2)
    gateway.configure(MODELS.replace('plugin = "fake"', 'plugin = "openai"\nbase_url = "no-address"', 1) + ADDED)
    os.kill(gateway.pid, signal.SIGHUP)
    await until(lambda: "refused the new configuration sha256:" in gateway.text)
    await until(lambda: gateway.text.count("reload failed, the old configuration stays") == 2)
    assert (await gateway.chat()).status == 200
    victim = gateway.workers[0]
    os.kill(victim, signal.SIGKILL)
    await until(lambda: not is_alive(victim))
    answers = await asyncio.gather(*(gateway.chat() for _ in range(10)))
    assert {answer.status for answer in answers} == {200}
    assert (await gateway.chat("added")).status == 403
    answers = await asyncio.gather(*(gateway.chat("before") for _ in range(10)))
    assert {answer.status for answer in answers} == {200}, "the last text that both workers took"


async def test_reload_changes_the_level_of_the_log_and_access_lines(serve: Serve) -> None:
    gateway = await serve()
    gateway.configure(MODELS + '\n[log]\nlevel = "error"\naccess = false\n')
    os.kill(gateway.pid, signal.SIGHUP)
    await reloaded(gateway, 1)
    assert (await gateway.chat("nowhere")).status == 403
    gateway.configure(MODELS)
    os.kill(gateway.pid, signal.SIGHUP)
    await until(lambda: _logs_a_call(gateway))
    assert "model_not_permitted" not in gateway.text
    assert gateway.text.count("configuration reloaded") == 1, "the second reload was logged at the level error"


async def _logs_a_call(gateway: Served) -> bool:
    assert (await gateway.chat()).status == 200
    return '"path":"/v1/chat/completions"' in gateway.text


async def _charge_of(gateway: Served, answer: Answer) -> int | None:
    """Not the difference of two balances: other calls may be charged between them."""
    wanted = next(value for name, value in answer.headers.items() if name.lower() == "x-request-id")
    return next((-line.amount for line in await gateway.charges() if line.request_id == wanted), None)


@pytest.mark.holds("operations/start.md#reload-1")
@pytest.mark.slow
async def test_last_of_two_quick_reloads_serves_also_if_the_first_is_refused(serve: Serve) -> None:
    gateway = await serve(workers=2)
    bad = MODELS.replace('plugin = "fake"', 'plugin = "openai"\nbase_url = "no-address"', 1)
    for number in range(8):
        gateway.configure(bad + ADDED)
        os.kill(gateway.pid, signal.SIGHUP)
        await until(lambda: has_taken(gateway.pid, signal.SIGHUP))
        gateway.configure(MODELS + ADDED.replace("added", f"added{number}"))
        os.kill(gateway.pid, signal.SIGHUP)
        for _ in range(2):
            await until(lambda number=number: _serves(gateway, f"added{number}"))  # type: ignore[misc]
    answers = await asyncio.gather(*(gateway.chat("added7") for _ in range(20)))
    assert {answer.status for answer in answers} == {200}


@pytest.mark.holds("operations/start.md#reload-1")
async def test_reload_during_the_start_is_not_lost(yard: Yard) -> None:
    gateway = yard.make()
    gateway.launch()
    await until(lambda: (gateway.data_dir / "store").exists())  # the file was read before
    gateway.configure(MODELS + ADDED)
    os.kill(gateway.pid, signal.SIGHUP)
    await until(lambda: "serving on" in gateway.text)
    await asyncio.to_thread(gateway.create_key)
    await until(lambda: _serves(gateway, "added"))
    assert (await gateway.chat("added")).status == 200


async def _serves(gateway: Served, model: str) -> bool:
    return {(await gateway.chat(model)).status for _ in range(4)} == {200}
