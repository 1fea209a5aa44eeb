"""Files in a folder."""

from __future__ import annotations

import os
import time
from pathlib import Path

from gateway.files.storage import DRAFT_FOR, LocalFiles


async def test_sweep_deletes_drafts_of_killed_processes_when_they_are_old(tmp_path: Path) -> None:
    folder, old = tmp_path / "ab", time.time() - DRAFT_FOR - 10
    folder.mkdir()
    for name, at in ((".file-1ab.0011", old), (".file-2ab.0011", None), ("file-3ab", old)):
        (folder / name).touch()
        if at is not None:
            os.utime(folder / name, (at, at))
    await LocalFiles(tmp_path).sweep()
    assert sorted(path.name for path in folder.iterdir()) == [".file-2ab.0011", "file-3ab"]
    await LocalFiles(tmp_path / "nowhere").sweep()
