"""The store's user of docs/operations/redis.md has every permission that the gateway needs, and is minimal."""

import asyncio
import re
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from gateway.accounts.keys import Keys
from gateway.errors import SignInLimited
from gateway.people.oidc.flows import Flow, Flows
from gateway.people.sign_in_limits import PER_SUBJECT, SignInLimits
from gateway.store import Store
from tests.polling import until
from tests.processes.conftest import Yard
from tests.processes.served import MODELS, Served
from tests.processes.test_batches import ask, counts, create
from tests.processes.test_store_identity import own_store, server_says

DOC = (Path(__file__).parents[2] / "docs" / "operations" / "redis.md").read_text(encoding="utf-8")
PASSWORD = "s3cret"


def documented_user() -> list[str]:
    """The words of the documented ACL SETUSER."""
    [block] = re.findall(r"```\n(ACL SETUSER gateway .*?)```", DOC, re.DOTALL)
    return str(block).replace("\\\n", " ").replace(">PASSWORD", f">{PASSWORD}").split()


async def post(gateway: Served, **headers: str) -> int:
    body = {"model": "quick", "messages": [{"role": "user", "content": "Hi"}]}
    headers["Authorization"] = f"Bearer {gateway.api_key}"
    async with (
        aiohttp.ClientSession() as session,
        session.post(f"{gateway.base_url}/chat/completions", json=body, headers=headers) as response,
    ):
        await response.read()
        return response.status


@pytest.mark.holds("operations/redis.md#the-stores-user-1")
async def test_documented_user_may_run_everything_that_the_gateway_runs(yard: Yard, tmp_path: Path) -> None:
    async with own_store(yard.folder / "elsewhere") as server:
        await server_says(server, *documented_user())
        models = f"{MODELS}\n[batches]\nenabled = true\n"
        gateway = yard.make(models, store=f"unix://gateway:{PASSWORD}@{server.socket}")
        await gateway.started()
        await gateway.command("accounts", "create", "test", "--balance", "10")
        limits = ["--rpm", "1000", "--tpm", "1000000", "--concurrency", "50", "--budget", "5"]
        gateway.api_key = gateway.run("keys", "create", "test", *limits).stdout.strip()
        assert await post(gateway) == 200
        for _ in range(2):
            assert await post(gateway, **{"Idempotency-Key": "once"}) == 200
        await run_a_batch(gateway)
        stream = await gateway.stream("endless").flowing(40)  # long enough for an extension of its hold
        key = (await gateway.command("keys", "list"))[0]["id"]
        commands: list[list[str]] = [
            ["accounts", "credit", "test", "1"],
            ["accounts", "allow", "test", "slow"],
            ["accounts", "show", "test"],
            ["explain", key, "quick"],
            ["models", "--health"],
            ["usage", "test"],
            ["audit"],
            ["backup", str(tmp_path / "backup")],
            ["keys", "revoke", key],
        ]
        for words in commands:
            done = gateway.run(*words)
            assert "NOPERM" not in done.stderr, (words, done.stderr)
            assert done.returncode in (0, 2) or words[0] == "audit", (words, done.stderr)
        await stream.ended()
        assert await gateway.readiness() == 200
        denied = [entry for entry in await denials(server) if not entry.startswith("client")]
        assert denied == []
        assert "NOPERM" not in gateway.text


async def run_a_batch(gateway: Served) -> None:
    """A batch, and everything else that files and batches ask the store for."""
    batch = await create(gateway, "quick")

    async def completed() -> bool:
        return (await counts(gateway, batch))[0] == "completed"

    await until(completed)
    for path in ("/files", "/batches"):
        _, page = await ask(gateway, "GET", f"{path}?limit=1")
        assert (await ask(gateway, "GET", f"{path}?after={page['last_id']}"))[0] == 200
    assert (await ask(gateway, "POST", f"/batches/{batch}/cancel"))[0] == 200
    _, page = await ask(gateway, "GET", "/files")
    assert (await ask(gateway, "DELETE", f"/files/{page['last_id']}"))[0] == 200


async def test_documented_user_may_run_what_signing_in_to_the_console_runs(yard: Yard) -> None:
    async with own_store(yard.folder / "elsewhere") as server:
        await server_says(server, *documented_user())
        store = await Store.open(f"unix://gateway:{PASSWORD}@{server.socket}", timeout=5.0)
        try:
            limits, flows = SignInLimits(store, bytes(32)), Flows(store)
            for _ in range(PER_SUBJECT):
                await limits.attempt("email ann@example.com", "192.0.2.1")
            with pytest.raises(SignInLimited):
                await limits.attempt("email ann@example.com", "")
            await limits.succeeded("email ann@example.com", "192.0.2.1")
            begun = await flows.begin(Flow(provider="corp", purpose="sign_in", path="/"))
            assert await flows.look(begun.state, begun.browser) is not None
            assert await flows.take(begun.state, "another browser") is None
            taken = await asyncio.gather(*(flows.take(begun.state, begun.browser) for _ in range(3)))
            assert [flow is not None for flow in taken].count(True) == 1
        finally:
            await store.close()
        assert await denials(server) == []


@pytest.mark.holds("operations/redis.md#the-stores-user-1")
@pytest.mark.parametrize("lacks", ["", "srem"])
async def test_documented_user_may_remove_a_key_whose_text_was_taken_and_an_older_one_does_as_well_without(
    yard: Yard, lacks: str
) -> None:
    async with own_store(yard.folder / "elsewhere") as server:
        await server_says(server, *documented_user(), *([f"-{lacks}"] if lacks else []))
        store = await Store.open(f"unix://gateway:{PASSWORD}@{server.socket}", timeout=5.0)
        try:
            keys, values = Keys(store, bytes(32)), dict[str, str | int](state="active", created=1, user="usr_1")
            text = "sk-" + "x" * 43
            made = await asyncio.gather(
                *(keys.store("acme", values, show_cost=False, text=text) for _ in range(2)), return_exceptions=True
            )
            assert sorted(type(one).__name__ for one in made) == ["CreatedKey", "InvalidValue"]
        finally:
            await store.close()
        assert await denials(server) == ([lacks] if lacks else [])


async def denials(server: Any) -> list[str]:
    """What the server has refused to the user."""
    log = await server_says(server, "ACL", "LOG")
    found = []
    for entry in log:
        fields = entry if isinstance(entry, dict) else dict(zip(entry[::2], entry[1::2], strict=True))
        found.append((fields.get(b"object") or fields["object"]).decode())
    return found


@pytest.mark.holds("operations/redis.md#the-stores-user-1")
def test_documented_user_may_neither_delete_everything_nor_configure_the_server() -> None:
    rules = documented_user()
    assert "-@all" in rules
    assert not {"+flushall", "+flushdb", "+config", "+acl", "+keys", "+debug", "+shutdown", "+@all"} & set(rules)
