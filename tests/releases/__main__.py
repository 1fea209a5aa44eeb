"""`python -m tests.releases record VERSION [--commit COMMIT] [--note TEXT]` records what a version stores.

It needs a clone with the commit, and a C compiler: the version runs under another clock. Without `--commit` it is that
of the tag `vVERSION`. `python -m tests.releases` lists what is recorded.
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import subprocess
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from gateway.testing.ports import free_ports
from tests.chaos.versions import PEPPER, Versioned, archived_source
from tests.fake_clock import FakeClock
from tests.processes.conftest import Yard
from tests.releases.registry import ARCHIVE, DATA, FACTS, MODELS, ROOT, Release, releases, write
from tests.releases.scenario import Recorded


def main(arguments: list[str]) -> int:
    """Record a version, or list those that are recorded."""
    parser = argparse.ArgumentParser(prog="python -m tests.releases", description=__doc__)
    commands = parser.add_subparsers(dest="command")
    record = commands.add_parser("record")
    record.add_argument("version")
    record.add_argument("--commit")
    record.add_argument("--note", default="")
    given = parser.parse_args(arguments)
    if given.command is None:
        for release in releases():
            print(release.version, release.commit[:8], release.note)
        return 0
    with tempfile.TemporaryDirectory() as folder:
        packed = recorded(Path(folder), given.version, given.commit or f"v{given.version}", given.note)
    print(f"{packed.relative_to(ROOT)}: {packed.stat().st_size:,} bytes")
    return 0


def recorded(place: Path, version: str, commit: str, note: str) -> Path:
    """Run the version in a folder, and write its entry."""
    full = _git("rev-parse", f"{commit}^{{commit}}")
    source = archived_source(place / "source", full)
    assert source is not None, f"git archive does not find {commit}"
    noon = datetime.now(UTC).replace(hour=12, minute=0, second=0, microsecond=0)
    clock, yard, kept = FakeClock(place, noon), Yard(place), place / "kept"
    kept.mkdir()
    port = free_ports(1)[0] if (source / "gateway" / "console").is_dir() else 0
    gateway = yard.make(name="old", kind=Versioned, workers=2, console_port=port)
    assert isinstance(gateway, Versioned)
    gateway.source, gateway.count = source, 2
    gateway.data_dir.mkdir(mode=0o700)
    pepper = gateway.data_dir / "pepper"
    pepper.write_text(PEPPER)
    pepper.chmod(0o600)
    work = Recorded(gateway, clock, kept / ARCHIVE, console_port=port)
    gateway.use_version(is_old=True)
    try:
        facts = asyncio.run(work.record(noon))
    except BaseException:
        print(gateway.text[-4000:] if gateway.log.exists() else "", file=sys.stderr)
        raise
    finally:
        if gateway.process is not None and gateway.process.poll() is None:
            asyncio.run(gateway.kill_all())
    (kept / MODELS).write_text(work.models)
    (kept / FACTS).write_bytes(msgspec.json.encode(facts))
    shutil.copytree(gateway.data_dir, kept / DATA, ignore=shutil.ignore_patterns("*.sock"))
    committed = int(_git("log", "-1", "--format=%ct", full))
    return write(Release(version, full, committed, round(clock.now().timestamp()), note), kept)


def _git(*arguments: str) -> str:
    return subprocess.run(
        ["git", "-C", str(ROOT), *arguments], check=True, capture_output=True, text=True
    ).stdout.strip()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
