"""The importer reads lines with a compact meta as if they had the form of before."""

from __future__ import annotations

from typing import Any

from tests.ledger.records import book, record_of
from tests.ledger.test_archive import busy
from tests.ledger.test_compact_meta import USUAL, compacting, stored


async def test_hash_chain_and_the_database_are_the_same_in_both_forms(world: Any, importing: Any) -> None:
    async with world() as w:
        key = await busy(w)
        hold = await compacting(w).admit(key)
        await book(w.ledger, hold, record_of(7, usage=USUAL.usage, provider="openai", outcome="ok"))
        one = importing(w)
        await one.all("acme")
        await one.same()
        assert [meta[:1] for meta in await stored(w)][-2:] == [b"{", b"["]
        assert all(line.meta_text.startswith("{") for line in one.lines() if line.kind == "use")
        await w.proved()
