"""The deployment id of the store that a data directory belongs to, in a file beside the journal.

An emptied store, or another one, is found by it. Sharp edge: a data directory without the file accepts any store.
"""

from __future__ import annotations

import re
from pathlib import Path

NAME = "deployment"
_ID = re.compile(r"[0-9a-f]{32}", re.ASCII)


class KnownDeployment:
    """The file in a data directory."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / NAME

    def read(self) -> str:
        """The id; empty if there is no file, or an unreadable one."""
        try:
            text = self._path.read_text("ascii").strip()
        except (OSError, UnicodeDecodeError):
            return ""
        return text if _ID.fullmatch(text) else ""

    def write(self, deployment: str) -> None:
        """Replace the id; OSError if the folder cannot be written."""
        if deployment == self.read():
            return
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        draft = self._path.with_suffix(".new")
        draft.write_text(f"{deployment}\n", "ascii")
        draft.replace(self._path)
