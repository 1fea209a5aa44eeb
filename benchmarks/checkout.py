"""A checkout of this repository: its folders, the names its packages have when installed, and its interpreter."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from msgspec import Struct

HERE = Path(__file__).resolve().parent.parent
PACKAGES = {"gateway": "gateway", "providers": "gateway_providers"}  # folder → name when installed


class Checkout(Struct, frozen=True):
    """One tree, wherever its modules lie."""

    root: Path

    @property
    def python(self) -> str:
        """The interpreter of the checkout's own environment (`.venv`); this one where it has none."""
        own = self.root / ".venv" / "bin" / "python"
        return str(own) if own.exists() and self.root != HERE else sys.executable

    @property
    def revision(self) -> str:
        """The short id of the commit, with "+ changes" where files differ from it; "unknown" outside of git."""
        commit = self._git("rev-parse", "--short", "HEAD")
        changes = self._git("status", "--porcelain", "--untracked-files=no")
        return f"{commit} + changes" if commit and changes else commit or "unknown"

    def _git(self, *words: str) -> str:
        """What git prints; nothing where it fails or is not installed."""
        try:
            done = subprocess.run(["git", "-C", str(self.root), *words], capture_output=True, text=True, timeout=30)
        except OSError:
            return ""
        return done.stdout.strip() if done.returncode == 0 else ""

    def folders(self) -> dict[str, Path]:
        """The folder of each package, by its installed name."""
        return {name: self.root / folder for folder, name in PACKAGES.items() if (self.root / folder).is_dir()}

    def path_entry(self, folder: Path) -> Path:
        """A folder for PYTHONPATH, made in `folder`, in which the packages have their installed names."""
        packages = folder / "packages"
        packages.mkdir(exist_ok=True)
        for name, source in self.folders().items():
            if not (packages / name).is_symlink():
                (packages / name).symlink_to(source)
        return packages
