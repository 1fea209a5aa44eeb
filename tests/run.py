"""Runs pytest, and runs what failed again, alone: `python -P tests/run.py [ARGUMENTS OF PYTEST]`.

At exit code 1 the tests that failed or had errors run again in a new process without xdist, twice. If all of them are
green both times, the run is green, and its last lines name each of them as `unsteady`, with the first line of its first
failure. Any red test makes the run red. The run is also red if more than `MOST` tests failed, if a module cannot be
imported, and if it ended before all tests had run (`-x`). All other exit codes stay as they are.

The file that `TESTS_REPORT` names gets one line more, a JSON object: the numbers `passed`, `failed` and `skipped`, the
lines `unsteady`, and `slowest` as pairs of seconds and test, set-up and clean-up included.

All temporary files of a run are in one folder, which carries the id of this process. It is removed at the end; if this
process is killed, by `tests/guard.py`, which also ends what the tests started; at the latest by the next run.

An unsteady test is a defect with a cause; CONTRIBUTING.md says who mends it.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import FrameType, MappingProxyType
from typing import NamedTuple

import pytest

MOST = 20  # tests that run again
AGAIN = 2  # times
SLOWEST = 20  # tests that a report names
FAILED = int(pytest.ExitCode.TESTS_FAILED)
GUARD = Path(__file__).with_name("guard.py")
PREFIX = "tests-run-"


class Recorded(NamedTuple):
    """What one process of pytest had: `failed` as test and first line, `slowest` as seconds and test."""

    failed: Mapping[str, str] = MappingProxyType({})
    passed: int = 0
    skipped: int = 0
    slowest: Sequence[tuple[float, str]] = ()


class Recorder:
    """Writes a `Recorded` to a JSON file, as a plugin of the process that reports.

    With `chosen` it runs exactly these tests instead of those that the command names. Then each of them has failed
    that did not pass: one that is skipped, and one that did not run.
    """

    def __init__(self, file: Path, chosen: Sequence[str]) -> None:
        self._file, self._chosen = file, chosen
        self._failed: dict[str, str] = dict.fromkeys(chosen, "did not run")
        self._is_collected = True
        self._outcomes: Counter[str] = Counter()
        self._seconds: defaultdict[str, float] = defaultdict(float)

    @pytest.hookimpl(tryfirst=True)
    def pytest_configure(self, config: pytest.Config) -> None:
        if self._chosen:
            config.args[:] = self._chosen

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        self._is_collected &= not report.failed

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._seconds[report.nodeid] += report.duration
        self._outcomes[report.outcome] += report.when == "call" or report.skipped
        if report.failed or (self._chosen and report.skipped):
            self._failed.setdefault(report.nodeid, first_line(report))
        elif report.when == "call":
            self._failed.pop(report.nodeid, None)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        is_whole = self._is_collected and not session.shouldfail and not session.shouldstop
        recorded = Recorded(
            failed=self._failed if is_whole or self._chosen else {},
            passed=self._outcomes["passed"],
            skipped=self._outcomes["skipped"],
            slowest=sorted(((round(time, 1), test) for test, time in self._seconds.items()), reverse=True)[:SLOWEST],
        )
        self._file.write_text(json.dumps(recorded._asdict()), encoding="utf-8")


def first_line(report: pytest.TestReport) -> str:
    """The first line of the message of a failure; of a report without a traceback, its text."""
    crash = getattr(report.longrepr, "reprcrash", None)
    text = crash.message if crash else str(report.longrepr)
    lines = text.split("\n")
    return next((line.strip() for line in lines if line.strip()), "no message")


def record(file: str, chosen: str, arguments: list[str]) -> int:
    """Run pytest in this process, with a `Recorder`."""
    return int(pytest.main(arguments, plugins=[Recorder(Path(file), json.loads(chosen))]))


def start(folder: Path, file: Path, arguments: Sequence[str], chosen: Sequence[str] = ()) -> int:
    """Run pytest in a new process, with all temporary files in `folder`, and return its exit code.

    A SIGTERM or SIGINT to this process is for that one. The session of its own keeps the guard alive where a signal
    ends the whole group of this process.
    """
    pytest_command = [sys.executable, "-P", __file__, "--record", str(file), json.dumps(chosen)]
    guard = [sys.executable, "-P", str(GUARD), str(folder)]
    command = [*guard, *pytest_command, f"--basetemp={folder / 't'}", *arguments]
    with subprocess.Popen(command, start_new_session=True, env=os.environ | {"TMPDIR": str(folder)}) as process:

        def forward(number: int, frame: FrameType | None) -> None:
            process.send_signal(number)

        signal.signal(signal.SIGTERM, forward)
        signal.signal(signal.SIGINT, forward)
        return process.wait()


@contextlib.contextmanager
def own_folder() -> Iterator[Path]:
    """A folder for the block; those of killed runs are removed first."""
    temporary = Path(tempfile.gettempdir())
    for left in temporary.glob(f"{PREFIX}[0-9]*"):
        if not is_running(int(left.name.removeprefix(PREFIX))):
            shutil.rmtree(left, ignore_errors=True)
    folder = temporary / f"{PREFIX}{os.getpid()}"
    folder.mkdir(mode=0o755)  # a PostgreSQL server that root starts is another user
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def is_running(pid: int) -> bool:
    """Whether there is a process with this id."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def recorded_in(file: Path) -> Recorded:
    """What a `Recorder` wrote; nothing if the run did not come to its end."""
    return Recorded(**json.loads(file.read_text(encoding="utf-8"))) if file.exists() else Recorded()


def pass_alone(folder: Path, arguments: Sequence[str], failed: Mapping[str, str]) -> bool:
    """Whether these tests are green each time they run again; more than `MOST` do not."""
    if len(failed) > MOST:
        print(f"\n{len(failed)} tests failed; more than {MOST} do not run again.", flush=True)
        return False
    without_coverage = ["--no-cov"] if any(argument.startswith("--cov") for argument in arguments) else []
    for turn in range(1, AGAIN + 1):
        print(f"\nWhat failed runs again, alone ({turn} of {AGAIN}): {len(failed)}", flush=True)
        file = folder / f"again-{turn}"
        if start(folder, file, [*arguments, "-n", "0", *without_coverage], list(failed)) or recorded_in(file).failed:
            return False
    return True


def one_line(text: str) -> str:
    """The text with its control characters escaped."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def append_report(recorded: Recorded, unsteady: Sequence[str]) -> None:
    """Add a line to the file that `TESTS_REPORT` names."""
    if name := os.environ.get("TESTS_REPORT"):
        report = {
            "passed": recorded.passed + len(unsteady),
            "failed": len(recorded.failed) - len(unsteady),
            "skipped": recorded.skipped,
            "unsteady": unsteady,
            "slowest": [(seconds, one_line(test)) for seconds, test in recorded.slowest],
        }
        with Path(name).open("a", encoding="utf-8") as file:
            file.write(json.dumps(report) + "\n")


def main(arguments: Sequence[str]) -> int:
    """Run pytest with these arguments, then what failed."""
    with own_folder() as folder:
        code = start(folder, folder / "first", arguments)
        recorded = recorded_in(folder / "first")
        unsteady: list[str] = []
        if code == FAILED and recorded.failed and pass_alone(folder, arguments, recorded.failed):
            code = 0
            unsteady = [f"unsteady: {one_line(test)} – {one_line(line)}" for test, line in recorded.failed.items()]
            print(f"\nFailed once, and passed {AGAIN} times alone: {len(unsteady)}", *unsteady, sep="\n", flush=True)
        append_report(recorded, unsteady)
        return code


if __name__ == "__main__":
    if sys.argv[1:2] == ["--record"]:
        sys.exit(record(sys.argv[2], sys.argv[3], sys.argv[4:]))
    sys.exit(main(sys.argv[1:]))
