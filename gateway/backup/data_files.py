"""The journals of this machine in a backup, and the files beside them.

A journal is copied while workers write it. A line that is not complete yet is left out. Its call is in the checkpoint
file, which was copied before, so it is settled by that.
"""

from __future__ import annotations

from pathlib import Path

from gateway.backup.files import write_file
from gateway.backup.manifest import DATA, JOURNAL
from gateway.config.public_tables import FOLDER as PRICES
from gateway.config.public_tables import SUFFIX as PRICES_END
from gateway.ledger.known_accounts import NAME as KNOWN_ACCOUNTS

LINES, CALLS, LOCK = ".jsonl", ".board", ".lock"  # ends of names in the journal's folder


def dump_files(data_dir: Path, folder: Path) -> None:
    """Copy the journals, the number of accounts and the tables of public prices of this installation."""
    journal = data_dir / "journal"
    # The checkpoint files first: a call that is settled in between is then in both, and is charged once.
    for end in (CALLS, LINES):
        for path in sorted(journal.glob(f"*{end}")):
            try:
                content = path.read_bytes()
            except FileNotFoundError:
                continue  # the store has confirmed it, and its owner has removed it
            write_file(folder / JOURNAL / path.name, content[: content.rfind(b"\n") + 1] if end == LINES else content)
    known = data_dir / KNOWN_ACCOUNTS
    if known.exists():
        write_file(folder / DATA / KNOWN_ACCOUNTS, known.read_bytes())
    for table in sorted((data_dir / PRICES).glob(f"*{PRICES_END}")):
        write_file(folder / DATA / PRICES / table.name, table.read_bytes())


def load_files(folder: Path, data_dir: Path, *, beside: Path | None = None) -> int:
    """Write the journals of a backup into a new data directory; returns the number of files.

    The next gateway takes them over, as it does with those of a dead worker. `beside`: the data directory that they
    are for, if its files stay; those that it has are left out.
    """
    added = 0
    target = data_dir / "journal"
    for path in sorted((folder / JOURNAL).glob("*")):
        if beside is not None and (beside / "journal" / path.name).exists():
            continue
        write_file(target / path.name, path.read_bytes())
        added += 1
        owner = path.name.partition(".")[0]
        if not path.name.startswith("refused"):
            (target / f"{owner}{LOCK}").touch(mode=0o600)
    known = folder / DATA / KNOWN_ACCOUNTS
    if known.exists() and (beside is None or not (beside / KNOWN_ACCOUNTS).exists()):
        write_file(data_dir / KNOWN_ACCOUNTS, known.read_bytes())
    for table in sorted((folder / DATA / PRICES).glob(f"*{PRICES_END}")):
        if not ((beside or data_dir) / PRICES / table.name).exists():
            write_file(data_dir / PRICES / table.name, table.read_bytes())
    return added
