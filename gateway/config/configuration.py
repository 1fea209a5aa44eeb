"""The configuration as the supervisor read it: one text for every worker, whatever happens to the file meanwhile.

`Configuration.read(path)` takes the file's bytes; `settings()` checks them. A worker that is started again, an hour and
a broken edit later, still serves what its siblings serve. Secrets are not in it: they stay references, and each
process looks them up.
"""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path

from msgspec import Struct, structs

from gateway.config.includes import Part, read_parts
from gateway.config.loader import demo_settings, parse_files
from gateway.config.public_prices import table_names
from gateway.config.settings import Settings
from gateway.config.toml_reader import read_file


class Configuration(Struct, frozen=True):
    """The bytes of a configuration file and of those that it includes; without a file, the demo's."""

    file: str
    raw: bytes
    demo: bool
    demo_folder: str = ""  # where the demo's store is when there is no file
    parts: tuple[Part, ...] = ()
    newest: str = ""  # the newest table of public prices; empty: the newest that is there

    @classmethod
    def read(cls, path: Path, *, demo: bool = False) -> Configuration:
        """What `path` holds now; SettingsError when it cannot be read."""
        raw = read_file(path)
        return cls(str(path), raw, demo, parts=read_parts(path, raw))

    def with_tables_of(self, settings: Settings) -> Configuration:
        """The same, which is read with the public prices of these settings for good."""
        return structs.replace(self, newest=settings.tables.newest)

    @classmethod
    def of_demo(cls, data_dir: Path) -> Configuration:
        """That of `gateway serve --demo`."""
        return cls("", b"", demo=True, demo_folder=str(data_dir))

    @property
    def fingerprint(self) -> bytes:
        """32 bytes that no other content of the files has, nor the same with another table of public prices.

        Of one file, those of `sha256sum`, unless the table is not one of the program.
        """
        found = sha256(self.raw + self._table)
        for part in self.parts:
            found.update(sha256(part.file.encode()).digest() + sha256(part.raw).digest())
        return found.digest()

    @property
    def _table(self) -> bytes:
        """The newest table, if it is not one of the program: the log names a file by what `sha256sum` prints."""
        return b"" if not self.newest or self.newest in table_names() else f"\n{self.newest}".encode()

    def settings(self) -> Settings:
        """The settings it describes; SettingsError with every problem found."""
        if not self.file:
            return demo_settings(self.demo_folder)
        return parse_files(self.file, self.raw, self.parts, demo=self.demo, newest=self.newest)
