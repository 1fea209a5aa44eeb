"""What `tox -e steady` runs: the test modules that differ from a commit."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests import steady

IDENTITY = ("-c", "user.name=a", "-c", "user.email=a@example.com", "-c", "commit.gpgsign=false")


def git(folder: Path, *arguments: str) -> None:
    """Run git on the checkout."""
    subprocess.run(["git", *IDENTITY, *arguments], cwd=folder, check=True, capture_output=True)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout with one commit."""
    for name in (
        "tests/test_same.py",
        "tests/test_edited.py",
        "tests/deep/test_gone.py",
        "tests/helper.py",
        "test_top.py",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("1\n", encoding="utf-8")
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-q", "-m", "First")
    return tmp_path


def test_modules_that_differ_are_those_of_commits_and_of_the_working_tree(checkout: Path) -> None:
    assert steady.changed_modules("HEAD", checkout) == []
    (checkout / "tests" / "deep" / "test_gone.py").unlink()
    for name in ("tests/test_edited.py", "tests/helper.py", "test_top.py", "tests/deep/test_committed.py"):
        (checkout / name).write_text("2\n", encoding="utf-8")
    git(checkout, "add", ".")
    git(checkout, "commit", "-q", "-m", "Second")
    (checkout / "tests" / "test_new.py").write_text("3\n", encoding="utf-8")
    changed = ["tests/deep/test_committed.py", "tests/test_edited.py", "tests/test_new.py"]
    assert steady.changed_modules("HEAD~1", checkout) == changed
    assert steady.changed_modules("HEAD", checkout) == ["tests/test_new.py"]


def test_commit_that_is_not_there_is_named(checkout: Path) -> None:
    with pytest.raises(SystemExit, match="There is no commit v9: --since names one"):
        steady.changed_modules("v9", checkout)
