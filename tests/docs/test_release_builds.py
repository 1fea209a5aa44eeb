"""`.ci/release.py` builds the same bytes of a commit everywhere; the tools that it needs are pinned with hashes."""

from __future__ import annotations

import gzip
import importlib.util
import io
import re
import tarfile
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]
CI = ROOT / ".ci"


def release() -> ModuleType:
    spec = importlib.util.spec_from_file_location("release", CI / "release.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def sdist(path: Path, names: list[str], *, at: int, owner: str, mode: int) -> bytes:
    """Write an sdist as a machine of that time, owner and umask would."""
    with gzip.GzipFile(path, "wb", mtime=at) as packed, tarfile.open(fileobj=packed, mode="w") as archive:
        for name in names:
            member = tarfile.TarInfo(name)
            member.size, member.mtime, member.mode = len(name), at + 0.5, mode
            member.uname = member.gname = owner
            member.uid = member.gid = len(owner)
            archive.addfile(member, io.BytesIO(name.encode()))
    release().normalise(path, 1_700_000_000)
    return path.read_bytes()


@pytest.mark.holds("security.md#packages-and-releases-2")
def test_sdists_of_two_machines_are_the_same_bytes(tmp_path: Path) -> None:
    one = sdist(tmp_path / "one.tar.gz", ["p-1/b.py", "p-1/a.py"], at=1_800_000_000, owner="ann", mode=0o644)
    other = sdist(tmp_path / "other.tar.gz", ["p-1/a.py", "p-1/b.py"], at=1_900_000_000, owner="robert", mode=0o600)
    assert one == other
    with tarfile.open(tmp_path / "one.tar.gz") as archive:
        assert [(member.name, member.mode, member.mtime) for member in archive] == [
            ("p-1/a.py", 0o644, 1_700_000_000), ("p-1/b.py", 0o644, 1_700_000_000)
        ]  # fmt: skip
        read = archive.extractfile("p-1/a.py")
        assert read is not None and read.read() == b"p-1/a.py"


def test_program_stays_one(tmp_path: Path) -> None:
    sdist(tmp_path / "one.tar.gz", ["p-1/run"], at=1, owner="ann", mode=0o700)
    with tarfile.open(tmp_path / "one.tar.gz") as archive:
        assert archive.getmember("p-1/run").mode == 0o755


@pytest.mark.holds("security.md#packages-and-releases-2")
def test_build_that_differs_ends_with_a_failure_and_writes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    module = release()
    monkeypatch.setattr(module, "_git", lambda *_: "1700000000")
    monkeypatch.setattr(module, "build", lambda root, place, epoch, machine: {"p.whl": place.name})
    assert module.main(tmp_path) == 1
    assert "two builds of one commit differ: p.whl" in capsys.readouterr().err
    assert not (tmp_path / "dist").exists()


@pytest.mark.holds("security.md#packages-and-releases-1")
def test_every_tool_of_a_release_is_pinned_with_a_hash() -> None:
    wanted = re.findall(r"^([a-z-]+)", (CI / "release.in").read_text(encoding="utf-8"), re.MULTILINE)
    blocks = re.split(r"^(?=[a-z0-9])", (CI / "release.lock").read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
    pinned = {re.match(r"([a-z0-9.-]+)==\S+ \\\n +--hash=sha256:[0-9a-f]{64}", block) for block in blocks}
    assert None not in pinned
    assert set(wanted) <= {match[1] for match in pinned if match} and "setuptools" in wanted
