"""Builds the sdist and the wheel of a commit in `dist/`, so that anybody who builds that commit gets the same bytes.

`tox -e release` installs the pinned tools of `release.lock` and runs it. It builds twice, from two exports of HEAD in
folders of other names and with another time zone, and ends with status 1 if a byte differs. `dist/SHA256SUMS` names the
files. What is not committed is not in a release. A commit with the tag of its version is built only if
`tests/releases/recorded` has what that version stores: later versions are tested on it.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

#: What differs between the two builds, beside the names of their folders: nothing of it may reach the files.
MACHINES = {
    "here": {"TZ": "UTC", "LC_ALL": "C.UTF-8", "PYTHONHASHSEED": "0"},
    "elsewhere": {"TZ": "Asia/Tokyo", "LC_ALL": "C", "PYTHONHASHSEED": "1"},
}


def main(root: Path) -> int:
    """Build the release of the repository at `root`."""
    require_recorded(root)
    epoch = int(_git(root, "log", "-1", "--format=%ct"))
    with tempfile.TemporaryDirectory() as place:
        first, second = (build(root, Path(place) / name, epoch, machine) for name, machine in MACHINES.items())
        different = [name for name in sorted({*first, *second}) if first.get(name) != second.get(name)]
        if different:
            print(f"two builds of one commit differ: {', '.join(different)}", file=sys.stderr)  # noqa: T201
            return 1
        dist = root / "dist"
        dist.mkdir(exist_ok=True)
        for name in first:
            shutil.copyfile(Path(place) / "here" / "out" / name, dist / name)
    sums = "".join(f"{digest}  {name}\n" for name, digest in sorted(first.items()))
    (dist / "SHA256SUMS").write_text(sums, encoding="utf-8")
    print(sums, end="")  # noqa: T201
    return 0


def require_recorded(root: Path) -> None:
    """SystemExit if HEAD has the tag of a version, and what this version stores is not recorded of this code."""
    for version in re.findall(r"^v(\d\S*)$", _git(root, "tag", "--points-at", "HEAD"), re.MULTILINE):
        entry = f"tests/releases/recorded/{version}/release.json"
        if not _git(root, "ls-tree", "--name-only", "HEAD", entry):
            raise SystemExit(f"HEAD has no {entry}: python -m tests.releases record {version} --commit HEAD")
        commit = json.loads(_git(root, "show", f"HEAD:{entry}"))["commit"]
        if _git(root, "diff", "--name-only", commit, "HEAD", "--", "gateway", "providers"):
            raise SystemExit(f"{entry} is of other code than HEAD: record it again")


def build(root: Path, place: Path, epoch: int, machine: dict[str, str]) -> dict[str, str]:
    """Build HEAD in `place`; the SHA-256 of each file in its folder `out`, by name."""
    source, out = place / "source", place / "out"
    source.mkdir(parents=True)
    archive = place / "source.tar"
    _git(root, "archive", "--output", str(archive), "HEAD")
    with tarfile.open(archive) as opened:
        opened.extractall(source, filter="data")
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(out), str(source)]
    environment = {**os.environ, **machine, "SOURCE_DATE_EPOCH": str(epoch)}
    # The permissions of a file that is generated while building are in the wheel.
    subprocess.run(command, check=True, env=environment, umask=0o022, stdout=subprocess.DEVNULL)  # noqa: S603
    for sdist in out.glob("*.tar.gz"):
        normalise(sdist, epoch)
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in out.iterdir()}


def normalise(sdist: Path, epoch: int) -> None:
    """Write the archive again without what depends on the machine: times, owners, permissions and order."""
    written = sdist.with_suffix(".new")
    with (
        tarfile.open(sdist) as before,
        written.open("wb") as raw,
        gzip.GzipFile(filename="", mode="wb", fileobj=raw, mtime=epoch) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as after,
    ):
        for member in sorted(before.getmembers(), key=lambda one: one.name):
            member.mtime, member.pax_headers = epoch, {}
            member.uid = member.gid = 0
            member.uname = member.gname = ""
            member.mode = 0o755 if member.isdir() or member.mode & 0o100 else 0o644
            after.addfile(member, before.extractfile(member) if member.isfile() else None)
    written.replace(sdist)


def _git(root: Path, *arguments: str) -> str:
    command = ["git", "-C", str(root), *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()  # noqa: S603


if __name__ == "__main__":
    sys.exit(main(Path(__file__).resolve().parents[1]))
