"""The configuration as the supervisor read it: one text for every worker, whatever happens to the file meanwhile.

`Configuration.read(path)` takes the file's bytes; `settings()` checks them. A worker that is started again, an hour and
a broken edit later, still serves what its siblings serve. Secrets are not in it: they stay references, and each
process looks them up.
"""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path

from msgspec import Struct

from gateway.config.loader import demo_settings, parse
from gateway.config.settings import Settings
from gateway.config.toml_reader import parse_toml, read_file


class Configuration(Struct, frozen=True):
    """A configuration file's bytes; without a file, the demo's."""

    file: str
    raw: bytes
    demo: bool
    demo_folder: str = ""  # where the demo's store is when there is no file

    @classmethod
    def read(cls, path: Path, *, demo: bool = False) -> Configuration:
        """What `path` holds now; SettingsError when it cannot be read."""
        return cls(str(path), read_file(path), demo)

    @classmethod
    def of_demo(cls, data_dir: Path) -> Configuration:
        """That of `gateway serve --demo`."""
        return cls("", b"", demo=True, demo_folder=str(data_dir))

    @property
    def fingerprint(self) -> bytes:
        """32 bytes that no other content of the file has."""
        return sha256(self.raw).digest()

    def settings(self) -> Settings:
        """The settings it describes; SettingsError with every problem found."""
        if not self.file:
            return demo_settings(self.demo_folder)
        return parse(parse_toml(self.raw, file=self.file), file=self.file, demo=self.demo)
