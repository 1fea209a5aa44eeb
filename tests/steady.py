"""Runs tests under bad conditions: `python -P tests/steady.py [OPTIONS] [ARGUMENTS OF PYTEST]`, as in `tox -e steady`.

It runs the test modules that differ from a commit several times, in random order, with twice as many processes as
usual, beside two busy processes for each core. A test that fails once makes it red: nothing runs again. Arguments of
pytest, such as `tests -m "not slow"`, choose other tests. The seed of each order is printed; `--seed` gives the first.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).parents[1]
ROUNDS = 5
BUSY = 2  # processes for each core
PROCESSES = 4  # of pytest for each core; `-n auto` starts half of them
MODULE = re.compile(r"tests/(?:.*/)?test_[^/]*\.py")


def git(*arguments: str, root: Path = ROOT) -> str:
    """What git prints, without the line end; nothing if it fails."""
    done = subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else ""


def default_commit() -> str:
    """The newest tag, or the main branch of the origin."""
    return git("describe", "--tags", "--abbrev=0") or "origin/main"


def changed_modules(commit: str, root: Path = ROOT) -> list[str]:
    """The test modules that differ from a commit, with those that are not committed."""
    if not git("rev-parse", "--verify", f"{commit}^{{commit}}", root=root):
        raise SystemExit(f"There is no commit {commit}: --since names one.")
    names = {*git("diff", "--name-only", commit, root=root).splitlines()}
    names |= {*git("ls-files", "--others", "--exclude-standard", root=root).splitlines()}
    return [name for name in sorted(names) if MODULE.fullmatch(name) and (root / name).exists()]


@contextmanager
def busy(count: int) -> Iterator[None]:
    """So many processes use all that they get of the processor."""
    processes = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def main(arguments: Sequence[str]) -> int:
    """Run the rounds until one of them is red."""
    parser = argparse.ArgumentParser(prog="steady.py", description=__doc__, allow_abbrev=False)
    parser.add_argument("--since", metavar="COMMIT", help="default: the newest tag, or origin/main")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--seed", type=int)
    options, chosen = parser.parse_known_args(arguments)
    if not chosen and not (chosen := changed_modules(options.since or default_commit())):
        print("No test module differs.")
        return 0
    sys.path.append(str(ROOT))
    from tests import run

    seed = random.SystemRandom().randrange(1 << 32) if options.seed is None else options.seed
    cores = os.cpu_count() or 1
    codes: list[int] = []
    for number in range(options.rounds):
        order = ["-p", "randomly", f"--randomly-seed={seed + number}", "--randomly-dont-reset-seed"]
        print(f"Round {number + 1} of {options.rounds}, --seed {seed + number}", flush=True)
        with run.own_folder() as folder, busy(BUSY * cores):
            codes.append(run.start(folder, folder / "first", ["-n", str(PROCESSES * cores), *order, *chosen]))
    print(f"Red rounds: {sum(code != 0 for code in codes)} of {len(codes)}", flush=True)
    return max(codes)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
