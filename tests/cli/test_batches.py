"""`gateway batches`: the same on this machine and over a server."""

from __future__ import annotations

from pathlib import Path

from gateway.store import Store
from tests.batches.made import made_batch

from .conftest import on_store
from .two_ways import TwoWays, ways

__all__ = ["ways"]


def test_batches_are_listed_shown_and_cancelled_here_and_over_a_server(ways: TwoWays, valkey: Path) -> None:
    for place in ("local1", "remote1"):
        ways.document(place, "accounts", "create", place)

    async def fill(store: Store) -> dict[str, str]:
        batches = [await made_batch(store, account, total=3) for account in ("local1", "remote1")]
        await made_batch(store, "local1", status="completed")
        return {batch.account: batch.id for batch in batches}

    ids: dict[str, str] = on_store(valkey, fill)
    for place in ("local1", "remote1"):
        listed = ways.document(place, "batches", "list")
        assert len(listed) == 3
        assert [one["id"] for one in ways.document(place, "batches", "list", "--limit", "1")] == [listed[0]["id"]]
        own = ways.document(place, "batches", "list", "--account", place)
        assert {one["account"] for one in own} == {place}
        table = ways.run(place, "batches", "list")
        assert table.stdout.split()[:3] == ["created", "id", "account"] and ids[place] in table.stdout
        shown = ways.document(place, "batches", "show", ids[place])
        assert (shown["total"], shown["status"]) == (3, "validating")
        cancelled = ways.document(place, "batches", "cancel", ids[place])
        assert cancelled["status"] == "cancelling"
        [event] = [one for one in ways.document(place, "audit-trail") if one["object"] == f"batch:{ids[place]}"]
        assert event["action"] == "batches.cancel"
    ways.same_refusal("batches", "show", "batch_none")
    ways.same_refusal("batches", "cancel", "batch_none")
