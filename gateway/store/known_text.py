"""A short text that a data directory keeps about its store, in a file beside the journal."""

from __future__ import annotations

import re
from pathlib import Path


class KnownText:
    """The file at `path`; `form` is what its text must match."""

    def __init__(self, path: Path, form: re.Pattern[str]) -> None:
        self._path = path
        self._form = form

    def read(self) -> str:
        """The text; empty if there is no file, or an unreadable one."""
        try:
            text = self._path.read_text("ascii").strip()
        except (OSError, UnicodeDecodeError):
            return ""
        return text if self._form.fullmatch(text) else ""

    def write(self, text: str) -> None:
        """Replace the text; OSError if the folder cannot be written."""
        if text == self.read():
            return
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        draft = self._path.with_suffix(".new")
        draft.write_text(f"{text}\n", "ascii")
        draft.replace(self._path)
