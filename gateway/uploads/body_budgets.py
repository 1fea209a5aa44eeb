"""The budgets of request bodies in one worker, and the folder for those that are on the disk."""

from __future__ import annotations

from pathlib import Path

from gateway.uploads.budget import Budget, Share
from gateway.uploads.spool import Spool


class BodyBudgets:
    """Made once per worker; the settings give the sizes in bytes."""

    __slots__ = ("_folder", "disk", "files", "memory")

    def __init__(self, folder: Path, *, memory: tuple[int, int], disk: tuple[int, int], files: int) -> None:
        self._folder = folder  # made once: a path per request would add strings to Python's table of interned ones
        self.memory = Budget("bytes of request bodies in memory", *memory)  # of the worker, and of an account
        self.disk = Budget("bytes of uploads on the disk", *disk)
        self.files = Budget("files of uploads", files, max(1, files // 2))

    def resize(self, *, memory: tuple[int, int], disk: tuple[int, int]) -> None:
        """Change the limits; requests that use more keep it."""
        self.memory.most, self.memory.most_of_account = memory
        self.disk.most, self.disk.most_of_account = disk

    def spool(self, account: str, memory: Share) -> Spool:
        """A spool of one upload; `memory` is the share of its request."""
        return Spool(self._folder, memory=memory, disk=self.disk.share(account), files=self.files.share(account))
