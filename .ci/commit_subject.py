"""The commit-msg check: a subject of at most 72 characters that names one change, and an empty line after it.

`python .ci/commit_subject.py FILE` reads the message that git wrote to FILE; it prints what is wrong and exits 1.
"""

from __future__ import annotations

import sys
from pathlib import Path

LONGEST = 72
#: Between two changes. A plain "and" may join two objects of one change.
JOINTS = (", and ", "; ", ". ", " and also ")
GENERATED = ("Merge ", "Revert ", "fixup! ", "squash! ")


def problems(message: str) -> list[str]:
    """What is wrong with a commit message; comments of git do not count."""
    lines = [line for line in message.splitlines() if not line.startswith("#")]
    subject = lines[0] if lines else ""
    if subject.startswith(GENERATED):
        return []
    found = []
    if not subject.strip():
        found.append("the first line is empty; it says what changed")
    if len(subject) > LONGEST:
        found.append(f"the subject has {len(subject)} characters; at most {LONGEST}")
    if subject[:1].islower():
        found.append('the subject begins with a small letter; begin it as a sentence: "Count audio deltas"')
    if subject.endswith("."):
        found.append("the subject ends with a full stop; leave it out")
    joints = [joint.strip() for joint in JOINTS if joint in subject]
    if joints:
        found.append(f'the subject names several changes ("{joints[0]}"); make a commit of each')
    if len(lines) > 1 and lines[1].strip():
        found.append("the line after the subject is not empty")
    return found


def main() -> int:
    """Check the file that is named on the command line."""
    found = problems(Path(sys.argv[1]).read_text(encoding="utf-8"))
    sys.stderr.writelines(f"commit message: {problem}\n" for problem in found)
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
