"""A checkout of this repository: its folders, the names its packages have when installed, and its interpreter."""

from __future__ import annotations

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
