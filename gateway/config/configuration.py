"""The configuration as the supervisor read it: one text for every worker, whatever happens to the file meanwhile.

`Configuration.read(path)` takes the file's bytes; `settings()` checks them. A worker that is started again, an hour and
a broken edit later, still serves what its siblings serve. Secrets are not in it: they stay references, and each
process looks them up.
"""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path

from msgspec import Struct, structs

from gateway.config.loader import demo_settings, parse
from gateway.config.public_prices import table_names
from gateway.config.settings import Settings
from gateway.config.toml_reader import parse_toml, read_file


class Configuration(Struct, frozen=True):
    """A configuration file's bytes; without a file, the demo's."""

    file: str
    raw: bytes
    demo: bool
    demo_folder: str = ""  # where the demo's store is when there is no file
    newest: str = ""  # the newest table of public prices; empty: the newest that is there

    @classmethod
    def read(cls, path: Path, *, demo: bool = False) -> Configuration:
        """What `path` holds now; SettingsError when it cannot be read."""
        return cls(str(path), read_file(path), demo)

    def with_tables_of(self, settings: Settings) -> Configuration:
        """The same, which is read with the public prices of these settings for good."""
        return structs.replace(self, newest=settings.tables.newest)

    @classmethod
    def of_demo(cls, data_dir: Path) -> Configuration:
        """That of `gateway serve --demo`."""
        return cls("", b"", demo=True, demo_folder=str(data_dir))

    @property
    def fingerprint(self) -> bytes:
        """32 bytes that no other content of the file has, nor the same with another table of public prices."""
        return sha256(self.raw + self._table).digest()

    @property
    def _table(self) -> bytes:
        """The newest table, if it is not one of the program: the log names a file by what `sha256sum` prints."""
        return b"" if not self.newest or self.newest in table_names() else f"\n{self.newest}".encode()

    def settings(self) -> Settings:
        """The settings it describes; SettingsError with every problem found."""
        if not self.file:
            return demo_settings(self.demo_folder)
        return parse(parse_toml(self.raw, file=self.file), file=self.file, demo=self.demo, newest=self.newest)
