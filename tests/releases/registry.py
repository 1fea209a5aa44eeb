"""The recorded releases, and what a test may know of each.

::

    for release in releases():                  # the oldest first
        facts = unpacked(release, folder)       # folder/data, folder/models.toml
"""

from __future__ import annotations

import re
import tarfile
from pathlib import Path

import msgspec
from msgspec import Struct

from gateway.ledger.inflight_checkpoint import BOOT

ROOT = Path(__file__).parents[2]
RECORDED = Path(__file__).parent / "recorded"
#: The entry of what CHANGELOG.md has under `[Unreleased]`; a release renames it to its version.
UNRELEASED = "unreleased"
DATA, MODELS, ARCHIVE, FACTS = "data", "models.toml", "lines.jsonl", "facts.json"

#: What a process leaves behind that is of no use to another machine.
LEFT_OUT = (".pid", ".sock", "socket", "server.log")


class Release(Struct, frozen=True):
    """A version that was recorded."""

    version: str
    commit: str
    committed: int  # Unix seconds of the commit
    recorded: int  # Unix seconds of its clock when it was killed
    note: str = ""

    @property
    def folder(self) -> Path:
        """Where its files are."""
        return RECORDED / self.version


class Line(Struct, frozen=True, array_like=True):
    """A line of the ledger as `gateway usage --json` printed it."""

    request_id: str
    kind: str
    amount: str
    balance: str


class AccountFacts(Struct, frozen=True):
    """An account when the gateway was killed."""

    shown: dict[str, str]  # of `gateway accounts show`: balance, state, group
    lines: list[Line]


class KeyFacts(Struct, frozen=True):
    """An API key and what a call with it is answered."""

    text: str
    account: str
    model: str
    status: int
    cost: str = ""  # of a call; empty if it is refused
    shown: dict[str, str | int | None] = {}  # of `gateway keys list`


class People(Struct, frozen=True):
    """The operator, who has a second factor, and an owner of an account."""

    operator: str
    password: str
    secret: str  # of the second factor
    session: str  # a cookie
    owner: str
    roles: dict[str, str]  # by e-mail
    token: str  # of the admin API
    events: int  # in the audit trail


class Facts(Struct, frozen=True):
    """What a version stored."""

    accounts: dict[str, AccountFacts]
    keys: dict[str, KeyFacts]  # by name
    once: str  # the body of the kept answer of the key "plain"
    refused: str  # the request whose settlement the store refused
    streams: int  # that ran when the gateway was killed
    boot: str  # of the machine: the amounts of running calls count within one boot
    people: People | None = None
    hidden: str = ""  # an alert that the operator does not want to see
    discovered: list[str] = []  # models that a provider listed


def releases() -> list[Release]:
    """All entries, the oldest first."""
    files = RECORDED.glob("*/release.json")
    found = [msgspec.json.decode(file.read_bytes(), type=Release) for file in files]
    return sorted(found, key=lambda one: one.committed)


def unpacked(release: Release, folder: Path) -> Facts:
    """Extract what was recorded to a folder, as if it had been written since this machine has started."""
    with tarfile.open(release.folder / "data.tar.xz") as tar:
        tar.extractall(folder, filter="data")
    facts = msgspec.json.decode((folder / FACTS).read_bytes(), type=Facts)
    for board in (folder / DATA / "journal").glob("*.board"):
        board.write_bytes(board.read_bytes().replace(facts.boot.encode(), BOOT.read_bytes().strip(), 1))
    return facts


def write(release: Release, folder: Path) -> Path:
    """Make the entry of a release from the files of `unpacked`; the archive."""
    release.folder.mkdir(parents=True, exist_ok=True)
    (release.folder / "release.json").write_bytes(msgspec.json.format(msgspec.json.encode(release), indent=2) + b"\n")
    packed = release.folder / "data.tar.xz"
    with tarfile.open(packed, "w:xz", preset=9) as tar:
        for name in sorted(path.name for path in folder.iterdir()):
            tar.add(folder / name, name, filter=_anonymous)
    return packed


def _anonymous(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    """A file or folder, without the name of its owner."""
    if not (member.isfile() or member.isdir()) or member.name.endswith(LEFT_OUT):
        return None
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member


def released_versions() -> list[str]:
    """The versions that CHANGELOG.md has a section of, the newest first."""
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    return re.findall(r"^## \[(\d+\.\d+\.\d+[^\]]*)\]", text, re.MULTILINE)
