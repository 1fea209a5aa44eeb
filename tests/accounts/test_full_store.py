"""A store at its memory limit: what must still work does, and what is refused leaves everything as it was."""

from pathlib import Path

import pytest

from gateway.errors import StoreFate, StoreUnavailable
from gateway.ledger.archive_checkpoint import OK
from gateway.ledger.scripts import load_script
from gateway.store import EmbeddedServer
from tests.ledger.records import settle
from tests.world import open_world


@pytest.mark.holds("operations/redis.md#a-full-store-1")
async def test_full_store_can_still_revoke_disable_and_trim(tmp_path: Path):
    server = EmbeddedServer(tmp_path)
    await server.start()
    try:
        async with open_world(server.socket) as w:
            key = await w.caller()
            await settle(w.ledger, await w.admit(key), 3)
            last = [line async for line in w.ledger.lines("acme")][-1]
            waiting = await w.admit(key)
            await w.store.client.config_set("maxmemory", 1)
            with pytest.raises(StoreUnavailable) as caught:
                await w.admit(key)
            assert caught.value.fate is StoreFate.REFUSED
            assert (caught.value.detail or "").startswith("OOM")
            with pytest.raises(StoreUnavailable):
                await w.store.probe()
            assert (await w.keys.revoke(key.id)).state == "revoked"
            assert (await w.accounts.disable("acme")).state == "disabled"
            arguments = ["0", "", "0", str(last.n), str(last.balance), last.id, "hash"]
            assert await w.store.link("{a:acme}").eval(load_script("trim"), ["{a:acme}"], arguments) == OK
            assert await w.store.client.xlen("{a:acme}:lg") == 0
            await w.store.client.config_set("maxmemory", 0)
            await settle(w.ledger, waiting, 2)
            await w.store.probe()
    finally:
        await server.stop()
