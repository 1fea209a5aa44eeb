"""Makes an archive file as `gateway compact` of older versions did: lines leave the store for a file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
from msgspec import structs

from gateway.ledger.archive_checkpoint import OK, advance, read_archive_checkpoint
from gateway.ledger.line import read_lines
from gateway.ledger.scripts import load_script
from tests.world import World

DAY_MS = 26 * 3_600_000


async def archive(world: World, path: Path, *accounts: str, page: int = 1000) -> int:
    """Move the accounts' lines of more than 26 hours ago to the end of the file; returns their number."""
    client: Any = world.store.client
    seconds, _ = await client.time()
    path.touch(mode=0o600)
    moved = 0
    for account in accounts or await world.ledger.accounts():
        checkpoint = await read_archive_checkpoint(world.store, account)
        old = [line async for line in read_lines(world.store, account) if line.milliseconds < seconds * 1000 - DAY_MS]
        for start in range(0, len(old), page):
            after, lines = checkpoint.copy(), []
            for line in old[start : start + page]:
                after.add(line)
                lines.append(structs.replace(line, hash=after.hash))
            with path.open("ab") as file:
                file.write(msgspec.json.Encoder().encode_lines(lines))
            assert await advance(world.store, load_script("trim"), account, before=checkpoint, after=after) == OK
            checkpoint = after
        moved += len(old)
    return moved
