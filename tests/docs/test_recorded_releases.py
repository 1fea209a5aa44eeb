"""Each release of CHANGELOG.md is recorded, so that the tests open what it stored, and `.ci/release.py` requires it."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.docs.test_release_builds import release as release_tool
from tests.releases.registry import ROOT, UNRELEASED, Release, released_versions, releases, unpacked

LARGEST = 100_000  # bytes


def git(*arguments: str, folder: Path = ROOT) -> str:
    done = subprocess.run(["git", "-C", str(folder), *arguments], capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else ""


@pytest.mark.holds("operations/upgrade.md#what-is-tested-1")
def test_each_release_of_the_changelog_is_recorded() -> None:
    recorded = [release.version for release in releases()]
    assert len(recorded) == len(set(recorded))
    assert set(released_versions()) <= set(recorded), "python -m tests.releases record VERSION"
    assert recorded[-1] == UNRELEASED or recorded[-1] == released_versions()[0]


@pytest.mark.parametrize("version", [release.version for release in releases()])
def test_recorded_release_is_small_and_whole(version: str, tmp_path: Path) -> None:
    [release] = [one for one in releases() if one.version == version]
    assert (release.folder / "data.tar.xz").stat().st_size < LARGEST
    facts = unpacked(release, tmp_path)
    assert set(facts.accounts) == {"test", "acme", "gone"}
    assert facts.refused and facts.once and facts.keys["plain"].cost
    assert list((tmp_path / "data" / "journal").glob("*.jsonl"))
    assert list((tmp_path / "data" / "journal").glob("*.board"))


@pytest.mark.parametrize("version", [release.version for release in releases()])
def test_tag_of_a_recorded_release_has_the_code_that_was_recorded(version: str) -> None:
    [release] = [one for one in releases() if one.version == version]
    tag = git("rev-parse", "--verify", "--quiet", f"v{version}^{{commit}}")
    if tag:  # there is none before the first release, nor in an export without a history
        assert not git("diff", "--stat", release.commit, tag, "--", "gateway", "providers")


def test_release_is_built_only_with_what_it_stored(tmp_path: Path) -> None:
    check = release_tool().require_recorded
    commit = repository(tmp_path)
    check(tmp_path)  # no release: the commit has no tag
    git("tag", "v1.2.3", folder=tmp_path)
    with pytest.raises(SystemExit, match=r"record 1\.2\.3"):
        check(tmp_path)
    write_entry(tmp_path, commit)
    git("tag", "--force", "v1.2.3", folder=tmp_path)
    check(tmp_path)
    (tmp_path / "gateway" / "code.py").write_text("changed = True\n")
    committed(tmp_path)
    git("tag", "--force", "v1.2.3", folder=tmp_path)
    with pytest.raises(SystemExit, match="other code"):
        check(tmp_path)


def repository(folder: Path) -> str:
    """A repository with a package; its commit."""
    git("init", "--quiet", folder=folder)
    (folder / "gateway").mkdir()
    (folder / "gateway" / "code.py").write_text("changed = False\n")
    return committed(folder)


def committed(folder: Path) -> str:
    git("add", "--all", folder=folder)
    names = ["-c", "user.name=a", "-c", "user.email=a@example.com"]
    git(*names, "commit", "--quiet", "--message", "Change", folder=folder)
    return git("rev-parse", "HEAD", folder=folder)


def write_entry(folder: Path, commit: str) -> None:
    """Record the commit as the version 1.2.3."""
    entry = folder / "tests" / "releases" / "recorded" / "1.2.3"
    entry.mkdir(parents=True)
    (entry / "release.json").write_text(f'{{"commit": "{commit}"}}')
    committed(folder)


@pytest.mark.parametrize("version", [release.version for release in releases()])
def test_commit_of_a_recorded_release_is_a_whole_one(version: str) -> None:
    [release] = [one for one in releases() if one.version == version]
    assert isinstance(release, Release)
    assert re.fullmatch(r"[0-9a-f]{40}", release.commit)
    assert 0 < release.committed < release.recorded + 86_400
