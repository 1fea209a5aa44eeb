"""Runs pytest, and runs what failed again, alone: `python -P tests/run.py [ARGUMENTS OF PYTEST]`.

At exit code 1 the tests that failed or had errors run again in a new process without xdist, twice. If all of them are
green both times, the run is green, and its last lines name each of them as `unsteady`, with the first line of its first
failure. They are also appended to the file that `UNSTEADY_TESTS` names. Any red test makes the run red. The run is also
red if more than `MOST` tests failed, if a module cannot be imported, and if it ended before all tests had run (`-x`).
All other exit codes stay as they are.

An unsteady test is a defect with a cause; CONTRIBUTING.md says who mends it.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import FrameType

import pytest

MOST = 20  # tests that run again
AGAIN = 2  # times
FAILED = int(pytest.ExitCode.TESTS_FAILED)


class Recorder:
    """Writes which tests failed to a JSON file, as a plugin of the process that reports: `{node id: first line}`.

    With `chosen` it runs exactly these tests instead of those that the command names. Then each of them has failed
    that did not pass: one that is skipped, and one that did not run.
    """

    def __init__(self, file: Path, chosen: Sequence[str]) -> None:
        self._file, self._chosen = file, chosen
        self._failed: dict[str, str] = dict.fromkeys(chosen, "did not run")
        self._is_collected = True

    @pytest.hookimpl(tryfirst=True)
    def pytest_configure(self, config: pytest.Config) -> None:
        if self._chosen:
            config.args[:] = self._chosen

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        self._is_collected &= not report.failed

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed or (self._chosen and report.skipped):
            self._failed.setdefault(report.nodeid, first_line(report))
        elif report.when == "call":
            self._failed.pop(report.nodeid, None)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        is_whole = self._is_collected and not session.shouldfail and not session.shouldstop
        failed = self._failed if is_whole or self._chosen else {}
        self._file.write_text(json.dumps(failed), encoding="utf-8")


def first_line(report: pytest.TestReport) -> str:
    """The first line of the message of a failure; of a report without a traceback, its text."""
    crash = getattr(report.longrepr, "reprcrash", None)
    text = crash.message if crash else str(report.longrepr)
    lines = text.split("\n")
    return next((line.strip() for line in lines if line.strip()), "no message")


def record(file: str, chosen: str, arguments: list[str]) -> int:
    """Run pytest in this process, with a `Recorder`."""
    return int(pytest.main(arguments, plugins=[Recorder(Path(file), json.loads(chosen))]))


def start(file: Path, arguments: Sequence[str], chosen: Sequence[str] = ()) -> int:
    """Run pytest in a new process, which a SIGTERM to this one ends too, and return its exit code."""
    command = [sys.executable, "-P", __file__, "--record", str(file), json.dumps(chosen), *arguments]
    with subprocess.Popen(command) as process:

        def end(number: int, frame: FrameType | None) -> None:
            process.terminate()

        signal.signal(signal.SIGTERM, end)
        code = process.wait()
    return code if code >= 0 else 128 - code  # as a shell has it for a process that a signal ended


def failed_in(file: Path) -> dict[str, str]:
    """What a `Recorder` wrote; nothing if the run did not come to its end."""
    return json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}


def pass_alone(folder: Path, arguments: Sequence[str], failed: Mapping[str, str]) -> bool:
    """Whether these tests are green each time they run again."""
    without_coverage = ["--no-cov"] if any(argument.startswith("--cov") for argument in arguments) else []
    for turn in range(1, AGAIN + 1):
        print(f"\nWhat failed runs again, alone ({turn} of {AGAIN}): {len(failed)}", flush=True)
        file = folder / f"again-{turn}"
        if start(file, [*arguments, "-n", "0", *without_coverage], list(failed)) or failed_in(file):
            return False
    return True


def one_line(text: str) -> str:
    """The text with its control characters escaped."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def report_unsteady(failed: Mapping[str, str]) -> None:
    """Name the tests that failed once."""
    lines = [f"unsteady: {one_line(test)} – {one_line(message)}" for test, message in failed.items()]
    print(f"\nFailed once, and passed {AGAIN} times alone: {len(lines)}", *lines, sep="\n", flush=True)
    if name := os.environ.get("UNSTEADY_TESTS"):
        with Path(name).open("a", encoding="utf-8") as file:
            file.writelines(f"{line}\n" for line in lines)


def main(arguments: Sequence[str]) -> int:
    """Run pytest with these arguments, then what failed."""
    with tempfile.TemporaryDirectory(prefix="tests-run-") as name:
        folder = Path(name)
        code = start(folder / "first", arguments)
        failed = failed_in(folder / "first")
        if code != FAILED or not failed:
            return code
        if len(failed) > MOST:
            print(f"\n{len(failed)} tests failed; more than {MOST} do not run again.", flush=True)
            return code
        if not pass_alone(folder, arguments, failed):
            return code
        report_unsteady(failed)
        return 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["--record"]:
        sys.exit(record(sys.argv[2], sys.argv[3], sys.argv[4:]))
    sys.exit(main(sys.argv[1:]))
