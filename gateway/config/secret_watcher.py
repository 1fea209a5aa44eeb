"""Sees that a file with a secret has changed, so that a rotated key is used without a restart.

Every `LOOK_EVERY` seconds each file's identity is compared: a rotation writes anew or renames over it, and an
orchestrator swaps a link. Sharp edge: a variable of the environment cannot change in a running process; `file:` is for
rotation.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Container, Mapping
from pathlib import Path

from gateway.log import gateway_log

LOOK_EVERY = 2.0  # seconds; a look at one file takes some microseconds

Stamp = tuple[int, ...]


class SecretWatch:
    """The files of every provider, by the provider's name."""

    def __init__(self, changed: Callable[[set[str]], Awaitable[None]]) -> None:
        self._changed = changed
        self._stamps: dict[str, dict[Path, Stamp]] = {}
        self._task: asyncio.Task[None] | None = None

    def watch(self, files: Mapping[str, Mapping[Path, Stamp]], *, kept: Container[str] = ()) -> None:
        """Watch these files, as they stood before they were read, and go on with those of the providers in `kept`."""
        self._stamps = {name: stamps for name, stamps in self._stamps.items() if name in kept}
        self._stamps |= {name: dict(stamps) for name, stamps in files.items() if stamps}

    def start(self) -> None:
        """Begin to look."""
        self._task = asyncio.get_running_loop().create_task(self._look_forever())

    async def close(self) -> None:
        """Stop."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})

    def look(self) -> set[str]:
        """The providers whose files changed since the last look."""
        changed = set()
        for name, stamps in self._stamps.items():
            for path, before in stamps.items():
                now = stamp_of(path)
                if now and now != before:  # a file that is gone for the moment is being replaced
                    stamps[path] = now
                    changed.add(name)
        return changed

    async def _look_forever(self) -> None:
        while True:
            await asyncio.sleep(LOOK_EVERY)
            changed = self.look()
            if not changed:
                continue
            try:
                await self._changed(changed)
            except Exception as error:
                # Providers of third parties are made anew in there: whatever they do, the watch goes on.
                gateway_log.error("providers could not be made anew", exc_info=error)


def stamp_of(path: Path) -> Stamp:
    """What tells a file from what it was before; empty while there is none."""
    try:
        found = path.stat()
    except OSError:
        return ()
    return found.st_ino, found.st_mtime_ns, found.st_size
