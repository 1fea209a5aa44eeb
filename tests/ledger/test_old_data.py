"""A data directory of an older release is opened: its journal is replayed, its checkpoint file is charged.

`fixtures/old_data.tar.gz` was made by the code of commit 06d6d44, which ended while the store was away. The store
has the settlement `sent`. The journal has `sent` and `unsent`, the checkpoint file a stream and a silent call.
"""

import tarfile
from pathlib import Path

from gateway.ledger import Journal, Ledger
from gateway.ledger import inflight_checkpoint as checkpoint_module
from gateway.ledger.recovery import TakenOver
from gateway.store import EmbeddedServer
from tests.ledger.storms import opened

ARCHIVE = Path(__file__).parent / "fixtures" / "old_data.tar.gz"
BOOT = "boot of the old release\n"
STREAMED = ((10 * 2 + 15 * 8 + 7) * 3 + 1) // 2  # 40 units, at one and a half tokens for four of them


async def test_data_of_an_older_release_is_replayed_and_audited_clean(tmp_path, monkeypatch, caplog):
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(tmp_path, filter="data")
    boot = tmp_path / "boot_id"
    boot.write_text(BOOT)
    monkeypatch.setattr(checkpoint_module, "BOOT", boot)
    server = EmbeddedServer(tmp_path)
    await server.start()
    try:
        async with opened(server.socket) as world:
            assert (await world.accounts.show("acme")).balance == 10_000 - 5
            journal = Journal(tmp_path / "journal")
            ledger = Ledger(world.store, {}, journal=journal)
            assert ledger.recovery is not None
            assert await ledger.recovery.take_over() == TakenOver(settlements=2, calls=2)
            charged = {line.request_id: (line.kind, -line.amount) async for line in ledger.lines("acme")}
            del charged[next(iter(charged))]  # the line that opened the account
            assert charged == {
                "sent": ("use", 5),
                "unsent": ("use", 70),
                "streamed": ("use", STREAMED),
                "silent": ("reclaim", 0),
            }
            account = await world.accounts.show("acme")
            assert (account.balance, account.held) == (10_000 - 5 - 70 - STREAMED, 0)
            await world.proved()
            assert await ledger.recovery.take_over() == TakenOver()
            await ledger.recovery.close()
            journal.close()
    finally:
        await server.stop()
    assert not caplog.records
