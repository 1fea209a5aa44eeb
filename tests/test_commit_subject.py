"""The commit-msg check refuses long subjects and subjects of several changes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parent.parent / ".ci" / "commit_subject.py"

if not SCRIPT.exists():
    pytest.skip("the tests are not in a checkout", allow_module_level=True)


def check(folder: Path, message: str) -> tuple[int, str]:
    file = folder / "COMMIT_EDITMSG"
    file.write_text(message, encoding="utf-8")
    run = subprocess.run([sys.executable, str(SCRIPT), str(file)], capture_output=True, text=True, check=False)
    return run.returncode, run.stderr


@pytest.mark.parametrize(
    "message",
    [
        "Count audio deltas in billing\n",
        "Read names and addresses of users at once\n\nOne query takes 2 ms.\n# Please enter the commit message\n",
        "# a comment of git\nRefuse empty names\n",
        "Merge branch 'a; b. c, and d' into a branch whose name is much longer than a subject may be\n",
        "x".upper() * 72,
    ],
)
def test_subject_of_one_change_is_accepted(tmp_path: Path, message: str) -> None:
    assert check(tmp_path, message) == (0, "")


@pytest.mark.parametrize(
    ("message", "said"),
    [
        ("X" * 73, "73 characters; at most 72"),
        ("Look up users in one place, and write plainer sentences\n", "several changes"),
        ("Refuse empty names; count them\n", "several changes"),
        ("count audio deltas\n", "small letter"),
        ("Count audio deltas.\n", "full stop"),
        ("Count audio deltas\nin billing\n", "not empty"),
        ("\n", "first line is empty"),
        ("", "first line is empty"),
    ],
)
def test_subject_that_is_long_or_of_several_changes_is_refused(tmp_path: Path, message: str, said: str) -> None:
    code, text = check(tmp_path, message)
    assert code == 1
    assert said in text
