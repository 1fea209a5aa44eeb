"""The proof at the end of the chaos tests of the history finds each fault that is planted."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from msgspec import structs

from gateway.database.address import DatabaseAddress
from tests.chaos.history_proof import Sql, prove
from tests.chaos.traffic import PER_TOKEN, Call
from tests.ledger.records import record_of

CHUNKS = {"first": 1, "second": 2, "third": 3}


@pytest.fixture
def database_address(tmp_path: Path) -> DatabaseAddress:
    """SQLite alone: the proof reads it without the gateway's code."""
    return DatabaseAddress(file=tmp_path / "gateway.db")


def answered(name: str) -> Call:
    call = Call(name)
    call.status, call.whole = 200, True
    return call


async def booked(w, importing) -> None:
    """A call for each of `CHUNKS`, in the store and in the database."""
    key = await w.caller()
    for name, chunks in CHUNKS.items():
        w.ledger.book(await w.admit(key), structs.replace(record_of(chunks * PER_TOKEN), tags={"call": name}))
        await w.ledger.drain()
    await importing(w).all("acme")


async def test_proof_of_a_sound_history_finds_nothing_and_counts_what_it_read(world, importing, tmp_path) -> None:
    async with world() as w:
        await booked(w, importing)
        sql = Sql(file=tmp_path / "gateway.db")
        proof = await prove(w, sql, ["acme"], map(answered, CHUNKS), CHUNKS, {})
    assert proof.faults == []
    assert (proof.lines, proof.in_store, proof.charged) == (4, 4, 6)


async def test_proof_compares_charges_with_what_the_upstream_wrote(world, importing, tmp_path) -> None:
    async with world() as w:
        await booked(w, importing)

        async def faults(calls: list[str], written: dict[str, int]) -> list[str]:
            return (
                await prove(w, Sql(file=tmp_path / "gateway.db"), ["acme"], map(answered, calls), written, {})
            ).faults

        [fault] = await faults(list(CHUNKS), CHUNKS | {"second": 5})
        assert "second" in fault
        assert "is charged -3.0 chunks of 5" in fault
        assert await faults(["first", "second"], CHUNKS) == ["third is nobody's call"]
        [fault] = await faults([*CHUNKS, "fourth"], CHUNKS | {"fourth": 1})
        assert "fourth" in fault


async def test_proof_finds_changes_of_the_database(world, importing, tmp_path) -> None:
    async with world() as w:
        await booked(w, importing)
        planted = {
            "DELETE FROM ledger_lines WHERE seq = 3": "line 4 with",
            "UPDATE ledger_lines SET hash = x'00' WHERE seq = 2": "line 2 of the store is not that of SQL",
            "UPDATE ledger_lines SET stream_id = '1-1' WHERE seq > 2": "is there 2 times",
            "UPDATE ledger_lines SET request_id = 'again' WHERE seq > 2": "again is charged 2 times",
            "UPDATE usage_daily SET calls = calls + 1": "usage_daily: calls and cost (4, 6000) instead of (3, 6000)",
            "UPDATE usage_monthly SET cost = 0": "usage_monthly: calls and cost (3, 0)",
        }
        for number, (change, expected) in enumerate(planted.items()):
            copy = tmp_path / f"{number}.db"
            with closing(sqlite3.connect(tmp_path / "gateway.db")) as own, closing(sqlite3.connect(copy)) as other:
                own.backup(other)
                other.execute(change)
                other.commit()
            proof = await prove(w, Sql(file=copy), ["acme"], map(answered, CHUNKS), CHUNKS, {})
            assert any(expected in fault for fault in proof.faults), (change, proof.faults)
