"""However an admission ends, no hold without a caller stays, and no slot in the checkpoint file."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from gateway.errors import GatewayError, StoreFate, StoreUnavailable
from gateway.ledger import Journal, Ledger
from gateway.ledger.admission import WIDTH
from gateway.ledger.inflight_checkpoint import Orphans, read_inflight_checkpoint
from gateway.store import Store
from gateway.store.address import RedisAddress
from gateway.store.connection import ReplyTo
from gateway.store.link import RedisLink
from tests.ledger.records import record_of, settle
from tests.polling import until
from tests.world import World


class Journaled:
    """A ledger with a journal on the store of a world."""

    def __init__(self, world: World, folder: Path, links: Any = None) -> None:
        self.world = world
        self.journal = Journal(folder)
        self.ledger = Ledger(links or world.store, {}, journal=self.journal)

    def in_checkpoint(self) -> Orphans:
        (path,) = self.journal.folder.glob("*.board")
        return read_inflight_checkpoint(path)

    async def held(self, account: str = "acme") -> int:
        return (await self.world.accounts.show(account)).held

    async def assert_released(self, account: str = "acme") -> None:
        """Wait until all that was sent is answered and journaled, then check that nothing is left."""
        link = self.world.store.link(f"{{a:{account}}}")
        await asyncio.sleep(0)  # an admission of this tick is sent now

        def answered() -> bool:
            return self.in_checkpoint() == Orphans() and not link.in_flight and not self.journal.unconfirmed

        await until(answered)
        await self.ledger.drain()
        await until(answered)
        assert await self.held(account) == 0
        await self.world.proved()


@asynccontextmanager
async def journaled(world: Any, folder: Path) -> AsyncIterator[Journaled]:
    async with world() as w:
        one = Journaled(w, folder)
        try:
            yield one
        finally:
            assert one.ledger.recovery is not None
            await one.ledger.recovery.close()
            one.journal.close()


# A caller that goes --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("steps", range(6))
async def test_caller_cancelled_at_any_step_leaves_no_hold_and_no_slot(world, tmp_path, steps):
    async with journaled(world, tmp_path) as j:
        key = await j.world.caller()
        future = j.ledger.admit(*j.world.ask(key))
        for _ in range(steps):
            await asyncio.sleep(0)
        if not future.cancel():  # it was answered before
            j.ledger.book(future.result(), None)
        await j.assert_released()


async def test_caller_cancelled_while_the_script_is_loaded_leaves_no_hold_and_no_slot(world, tmp_path):
    async with journaled(world, tmp_path) as j:
        key = await j.world.caller()
        await j.world.store.client.script_flush()
        future = j.ledger.admit(*j.world.ask(key))
        while not j.ledger._admission._batches._tasks:  # the first reply was NOSCRIPT
            await asyncio.sleep(0)
        future.cancel()
        await j.assert_released()


async def test_caller_cancelled_while_the_store_is_away_leaves_no_hold_and_no_slot(world, tmp_path):
    async with journaled(world, tmp_path) as j:
        key = await j.world.caller()
        link = j.world.store.link("{a:acme}")
        link.disconnect("a test")
        future = j.ledger.admit(*j.world.ask(key))
        assert not link.connected
        future.cancel()
        await until(lambda: link.connected)
        await j.assert_released()


# A reply that does not come ------------------------------------------------------------------------------------------


async def test_admission_whose_reply_is_lost_with_its_connection_is_sent_again_and_holds_once(world, tmp_path):
    async with journaled(world, tmp_path) as j:
        key = await j.world.caller()
        future = j.ledger.admit(*j.world.ask(key, 100))
        link = j.world.store.link("{a:acme}")
        await asyncio.sleep(0)  # it is queued now
        link.flush()
        link.disconnect("a test")
        hold = await future
        assert (await j.world.accounts.show("acme")).held == 100
        j.ledger.book(hold, None)
        await j.assert_released()


async def test_admission_whose_reply_does_not_come_in_time_is_released_again(world, tmp_path):
    async with journaled(world, tmp_path) as j:
        key = await j.world.caller()
        await settle(j.ledger, await j.ledger.admit(*j.world.ask(key)), 0)  # the store has both scripts
        future = j.ledger.admit(*j.world.ask(key))
        link = j.world.store.link("{a:acme}")
        await asyncio.sleep(0)  # it is queued now
        assert link.in_flight
        link.flush()
        link.timeout, timeout = 0.0, link.timeout  # it is over for this admission
        link.disconnect("a test")
        link.timeout = timeout
        with pytest.raises(StoreUnavailable) as caught:
            await future
        assert caught.value.fate is StoreFate.UNKNOWN
        await j.assert_released()


async def test_admission_over_a_closed_link_fails_and_leaves_no_slot(world, tmp_path):
    async with journaled(world, tmp_path) as j:
        key = await j.world.caller()
        await j.world.store.link("{a:acme}").close()
        with pytest.raises(StoreUnavailable) as caught:
            await asyncio.wait_for(j.ledger.admit(*j.world.ask(key)), 30)
        assert caught.value.fate is StoreFate.NEVER_SENT
        assert j.in_checkpoint() == Orphans()


async def test_flushed_scripts_cause_no_lost_or_repeated_admission_or_settlement(world, tmp_path):
    async with journaled(world, tmp_path) as j:
        keys = [await j.world.caller(), await j.world.caller("umbra")]
        before = [await j.ledger.admit(*j.world.ask(key)) for key in keys for _ in range(20)]
        await j.world.store.client.script_flush()
        for hold in before:
            j.ledger.book(hold, record_of(3))
        after = await asyncio.gather(*(j.ledger.admit(*j.world.ask(key)) for key in keys for _ in range(20)))
        await j.ledger.drain()
        assert [await j.held(name) for name in ("acme", "umbra")] == [20_000, 20_000]
        for hold in after:
            j.ledger.book(hold, None)
        await j.assert_released("acme")
        await j.assert_released("umbra")
        accounts = [await j.world.accounts.show(name) for name in ("acme", "umbra")]
        assert {account.balance for account in accounts} == {10_000_000_000 - 60}


# A batch that cannot be sent -----------------------------------------------------------------------------------------


async def test_call_that_cannot_be_encoded_does_not_affect_other_accounts_of_its_tick(world, tmp_path):
    async with journaled(world, tmp_path) as j:
        bad = j.ledger.admit(*j.world.ask(await j.world.caller(), model="\ud800"))
        good = j.ledger.admit(*j.world.ask(await j.world.caller("umbra")))
        assert (await good).amount == 1000
        with pytest.raises(GatewayError):
            await bad
        await settle(j.ledger, good.result(), 5)
        await j.assert_released()
        await j.assert_released("umbra")


# A reply that cannot be used -----------------------------------------------------------------------------------------


async def test_reply_that_cannot_be_used_fails_its_caller_and_releases_the_hold(world, tmp_path, caplog):
    async with journaled(world, tmp_path) as j:
        key = await j.world.caller()
        await settle(j.ledger, await j.ledger.admit(*j.world.ask(key)), 0)

        def broken(batch: Any, reply: Any) -> None:
            raise IndexError("a bug")

        j.ledger._admission._batches.on_answer = broken
        lost, gone = j.ledger.admit(*j.world.ask(key)), j.ledger.admit(*j.world.ask(key))
        gone.cancel()
        with pytest.raises(StoreUnavailable, match="temporarily") as caught:
            await asyncio.wait_for(lost, 30)
        assert caught.value.fate is StoreFate.UNKNOWN
        assert "could not be used" in caplog.text
        await j.assert_released()


async def test_call_that_was_answered_keeps_its_hold_if_the_rest_of_the_reply_cannot_be_used(world, tmp_path):
    async with journaled(world, tmp_path) as j:
        key = await j.world.caller()
        await j.world.admit(key, 0)
        batches = j.ledger._admission._batches
        answered = batches.on_answer
        batches.on_answer = lambda batch, reply: answered(batch, reply[:WIDTH])
        first, second = j.ledger.admit(*j.world.ask(key)), j.ledger.admit(*j.world.ask(key, 500))
        with pytest.raises(StoreUnavailable):
            await asyncio.wait_for(second, 30)
        hold = await first
        await j.ledger.drain()

        async def only_the_first() -> bool:
            return await j.held() == 1000

        await until(only_the_first)
        await settle(j.ledger, hold, 7)
        await j.assert_released()
        assert (await j.world.accounts.show("acme")).balance == 10_000_000_000 - 7


async def test_settlements_whose_reply_cannot_be_used_are_sent_again_and_charged_once(world, tmp_path):
    async with journaled(world, tmp_path) as j:
        key = await j.world.caller()
        holds = [await j.ledger.admit(*j.world.ask(key)) for _ in range(3)]
        await settle(j.ledger, await j.ledger.admit(*j.world.ask(key)), 0)
        batches = j.ledger._writer._batches
        answered = batches.on_answer

        def broken(batch: Any, reply: Any) -> None:
            batches.on_answer = answered
            answered(batch, reply[:3])  # the first of three

        batches.on_answer = broken
        for hold in holds:
            j.ledger.book(hold, record_of(7))
        await asyncio.wait_for(j.ledger.drain(), 30)
        assert j.ledger._writer._booked == 0
        await j.assert_released()
        assert (await j.world.accounts.show("acme")).balance == 10_000_000_000 - 21
        assert not (tmp_path / "refused.jsonl").exists()


# Another server ------------------------------------------------------------------------------------------------------


class Moved:
    """Links of an account whose slot has moved: the first goes to a server that answers MOVED."""

    def __init__(self, store: Store, port: int) -> None:
        self._store = store
        self.moves: list[str] = []
        self.old = RedisLink(RedisAddress(port=port), on_redirect=self._redirected)

    @property
    def links(self) -> list[RedisLink]:
        return [self.old]

    def link(self, slot_key: str) -> RedisLink:
        return self._store.link(slot_key) if self.moves else self.old

    def _redirected(self, command: bytes, reply_to: ReplyTo, reply: str) -> bool:
        self.moves.append(reply)
        self._store.link("{a:acme}").forward(command, reply_to)
        return True


async def test_redirected_admissions_reach_a_server_without_the_script_once(world, tmp_path):
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        answers = {b"HELLO": b"%0\r\n", b"INFO": b"$0\r\n\r\n", b"EVALSHA": b"-MOVED 7 127.0.0.1:1\r\n"}
        while command := await reader.read(65536):
            writer.write(b"".join(answer * command.count(name) for name, answer in answers.items()))
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with world() as w:
        links = Moved(w.store, server.sockets[0].getsockname()[1])
        await links.old.connect()
        j = Journaled(w, tmp_path, links)
        key = await w.caller()
        await w.store.client.script_flush()
        kept, gone = j.ledger.admit(*w.ask(key)), j.ledger.admit(*w.ask(key))
        gone.cancel()
        await settle(j.ledger, await kept, 5)
        await j.assert_released()
        assert len(links.moves) == 1
        assert (await w.accounts.show("acme")).balance == 10_000_000_000 - 5
        j.journal.close()
        await links.old.close()
    server.close()
