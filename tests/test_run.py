"""The entry point of the tests, started as a process on planted tests; each is the only fault of its run."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from tests.polling import ENDS_WITHIN, until_blocking

pytestmark = pytest.mark.slow

RUN = Path(__file__).with_name("run.py")
# `turn(name)` counts from 1; the count is in a file, because each run is a new process.
CONFTEST = """
from pathlib import Path

import pytest


@pytest.fixture
def turn():
    def count(name):
        with open(f"{name}.turns", "a+") as file:
            file.write(".")
            file.flush()
            return Path(file.name).stat().st_size
    return count


@pytest.fixture
def broken_first(turn):
    assert turn("fixture") > 1, "the fixture is broken"


@pytest.fixture
def broken_end_first(turn):
    yield
    assert turn("end") > 1, "the end is broken"
"""
INI = """
[pytest]
addopts = --import-mode=importlib -p xdist -p pytest_cov -p pytest_timeout
timeout_method = thread
"""
GREEN = "def test_beside_it(turn):\n    turn('beside')\n"


@dataclass(frozen=True)
class Done:
    """A run that ended: its exit code, its output, and what it reported."""

    code: int
    output: str
    report: dict[str, Any]
    folder: Path

    @property
    def unsteady(self) -> list[str]:
        """The lines of the unsteady tests."""
        lines: list[str] = self.report["unsteady"]
        return lines

    def turns(self, name: str) -> int:
        """How often a planted test counted."""
        file = self.folder / f"{name}.turns"
        return file.stat().st_size if file.exists() else 0


def planted_run(folder: Path, planted: str, *arguments: str) -> tuple[list[str], dict[str, str]]:
    """The command that runs the planted module, and a green test beside it, and its environment."""
    (folder / "pytest.ini").write_text(INI, encoding="utf-8")
    (folder / "conftest.py").write_text(CONFTEST, encoding="utf-8")
    (folder / "test_beside.py").write_text(GREEN, encoding="utf-8")
    (folder / "test_planted.py").write_text(dedent(planted), encoding="utf-8")
    (folder / "tmp").mkdir()
    # The settings of the run that this test is part of must not reach the planted one. Other plugins take a second.
    env = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "COV_", "COVERAGE_"))}
    env |= {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "TMPDIR": str(folder / "tmp")}
    return [sys.executable, "-P", str(RUN), *arguments], env | {"TESTS_REPORT": str(folder / "report")}


def run(folder: Path, planted: str, *arguments: str, processes: int = 0) -> Done:
    """Run the planted module to its end; without processes of pytest-xdist it takes a third of the time."""
    command, env = planted_run(folder, planted, "-n", str(processes), *arguments)
    done = subprocess.run(
        command,
        cwd=folder,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=ENDS_WITHIN,
        check=False,
    )
    assert list((folder / "tmp").iterdir()) == []
    return Done(done.returncode, done.stdout, json.loads((folder / "report").read_text(encoding="utf-8")), folder)


def test_green_run_is_green_and_runs_once(tmp_path):
    done = run(tmp_path, "def test_a(turn):\n    turn('a')\n")
    assert (done.code, done.unsteady, done.turns("a")) == (0, [], 1)
    assert "again" not in done.output


def test_test_that_always_fails_is_red(tmp_path):
    done = run(tmp_path, "def test_a(turn):\n    assert turn('a') == 0\n")
    assert (done.code, done.unsteady) == (1, [])
    assert done.turns("a") == 2  # a red one decides


def test_test_that_fails_at_first_only_is_green_and_named_at_the_end(tmp_path):
    done = run(tmp_path, "def test_a(turn):\n    assert turn('a') > 1, 'too early\\nand more'\n", processes=2)
    line = "unsteady: test_planted.py::test_a – AssertionError: too early"
    assert (done.code, done.unsteady) == (0, [line])
    assert done.output.endswith(f"Failed once, and passed 2 times alone: 1\n{line}\n")
    assert "E       AssertionError: too early" in done.output
    assert (done.turns("a"), done.turns("beside")) == (3, 1)  # nothing else runs again


def test_test_that_fails_once_more_when_it_is_alone_is_red(tmp_path):
    done = run(tmp_path, "def test_a(turn):\n    assert turn('a') == 2\n")
    assert (done.code, done.unsteady, done.turns("a")) == (1, [], 3)


@pytest.mark.parametrize("end", ["skip('no longer there')", "exit('ended', returncode=0)"])
def test_test_that_does_not_pass_when_it_is_alone_is_red(tmp_path, end):
    planted = f"""
    import pytest

    def test_a(turn):
        if turn('a') > 1:
            pytest.{end}
        assert False
    """
    done = run(tmp_path, planted)
    assert (done.code, done.unsteady) == (1, [])


@pytest.mark.parametrize(
    ("fixture", "counter", "message"),
    [("broken_first", "fixture", "the fixture is broken"), ("broken_end_first", "end", "the end is broken")],
)
def test_error_in_a_fixture_counts_like_a_failure(tmp_path, fixture, counter, message):
    done = run(tmp_path, f"def test_a({fixture}):\n    pass\n", processes=2)
    assert (done.code, done.turns(counter)) == (0, 3)
    assert done.unsteady == [f"unsteady: test_planted.py::test_a – AssertionError: {message}"]


def test_test_whose_process_dies_once_is_unsteady_and_one_that_always_dies_is_red(tmp_path):
    once, always = tmp_path / "once", tmp_path / "always"
    once.mkdir()
    always.mkdir()
    done = run(once, "import os\n\ndef test_a(turn):\n    turn('a') == 1 and os._exit(7)\n", processes=2)
    assert (done.code, done.turns("a")) == (0, 3)
    assert [line.partition(" – ")[0] for line in done.unsteady] == ["unsteady: test_planted.py::test_a"]
    assert "crashed while running" in done.unsteady[0]
    done = run(always, "import os\n\ndef test_a(turn):\n    turn('a')\n    os._exit(7)\n", processes=2)
    assert (done.code, done.unsteady) == (1, [])


def test_ids_of_any_form_run_again_exactly(tmp_path):
    ids = ["a b", "x::y", "[z]", "line\nend", "quote'\"", "ü – ö", "-n"]
    planted = f"""
    import pytest

    @pytest.mark.parametrize("case", {ids!r}, ids={ids!r})
    def test_a(turn, case):
        number = {ids!r}.index(case)
        assert turn(f"case{{number}}") > 1 or number % 2, "only at first"

    class TestB:
        def test_in_a_class(self, turn):
            assert turn("class") > 1, "only at first"
    """
    done = run(tmp_path, planted, processes=2)
    assert done.code == 0
    assert len(done.unsteady) == 5
    assert [done.turns(f"case{number}") for number in range(7)] == [3, 1, 3, 1, 3, 1, 3]
    assert done.turns("class") == 3


def test_more_than_twenty_failed_tests_are_red_at_once(tmp_path):
    planted = """
    import pytest

    @pytest.mark.parametrize("case", range({count}))
    def test_a(turn, case):
        assert turn(f"case{{case}}") > 1
    """
    many, few = tmp_path / "many", tmp_path / "few"
    many.mkdir()
    few.mkdir()
    done = run(many, planted.format(count=21))
    assert (done.code, done.unsteady, done.turns("case0")) == (1, [], 1)
    assert "21 tests failed; more than 20 do not run again." in done.output
    done = run(few, planted.format(count=20))
    assert (done.code, len(done.unsteady), done.turns("case0")) == (0, 20, 3)


def test_example_that_hypothesis_found_fails_again(tmp_path):
    planted = """
    from hypothesis import Phase, given, settings, strategies
    from hypothesis.database import DirectoryBasedExampleDatabase

    def test_a(turn):
        is_first = turn("a") == 1
        phases = [Phase.generate, Phase.reuse] if is_first else [Phase.reuse]  # later: only what was found

        @settings(phases=phases, database=DirectoryBasedExampleDatabase(".hypothesis/examples"))
        @given(strategies.integers())
        def check(number):
            assert number < 10

        check()
    """
    done = run(tmp_path, planted)
    assert (done.code, done.unsteady, done.turns("a")) == (1, [], 2)


@pytest.mark.parametrize(
    ("planted", "arguments", "code"),
    [
        ("raise RuntimeError('cannot be imported')\n", ("-n", "2"), 1),
        ("raise RuntimeError('cannot be imported')\n", (), 2),
        ("", ("--no-such-option",), 4),
        ("def test_a():\n    pass\n", ("-k", "nothing_has_this_name"), 5),
        ("import pytest\n\ndef test_a():\n    pytest.exit('stop', returncode=9)\n", (), 9),
    ],
    ids=["import-of-processes", "import", "usage", "no-tests", "stopped"],
)
def test_exit_code_of_a_run_that_did_not_run_its_tests_stays(tmp_path, planted, arguments, code):
    done = run(tmp_path, planted, *arguments)
    assert (done.code, done.unsteady) == (code, [])
    assert "runs again" not in done.output


def test_signals_that_the_shell_ignores_are_not_ignored_in_tests(tmp_path):
    planted = """
    import signal

    def test_a():
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    """
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # as for a command in the background
    try:
        done = run(tmp_path, planted)
    finally:
        signal.signal(signal.SIGINT, before)
    assert (done.code, done.unsteady) == (0, []), done.output


@pytest.mark.parametrize("processes", [0, 2])
def test_run_that_ends_before_all_tests_ran_is_red(tmp_path, processes):
    done = run(tmp_path, "def test_a(turn):\n    assert turn('a') > 1\n", "-x", processes=processes)
    assert done.code in (1, 2)
    assert (done.unsteady, done.turns("a")) == ([], 1)


def test_coverage_is_of_the_whole_run(tmp_path):
    (tmp_path / "module.py").write_text("def used():\n    return 1\n", encoding="utf-8")
    planted = """
    import importlib.util

    def module():
        spec = importlib.util.spec_from_file_location("module", "module.py")
        found = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(found)
        return found

    def test_a():
        module().used()

    def test_b(turn):
        assert turn("b") > 1
    """
    done = run(tmp_path, planted, "--cov=.", "--cov-report=term")
    assert (done.code, len(done.unsteady)) == (0, 1)
    assert done.output.count("TOTAL") == 1


@pytest.mark.parametrize(("when", "code", "unsteady"), [("turn('a') == 1", 0, 1), ("True", 1, 0)])
def test_test_that_hangs_ends_with_the_stacks_of_all_threads(tmp_path, when, code, unsteady):
    planted = f"""
    import threading

    def wait_in_a_thread():
        threading.Event().wait()

    def test_a(turn):
        turn("begun")
        if {when}:
            threading.Thread(target=wait_in_a_thread, daemon=True).start()
            threading.Lock().acquire() and threading.Event().wait()
    """
    done = run(tmp_path, planted, "--timeout=2", "-o", "faulthandler_timeout=1", processes=2)
    assert (done.code, len(done.unsteady)) == (code, unsteady)
    assert "in wait_in_a_thread" in done.output and "in test_a" in done.output
    assert done.turns("beside") == 1


def test_report_has_the_totals_and_the_slowest_tests(tmp_path):
    planted = """
    import threading

    import pytest

    def test_slow():
        threading.Event().wait(0.3)

    def test_red():
        assert False

    @pytest.mark.skip
    def test_skipped():
        pass
    """
    done = run(tmp_path, planted)
    assert done.code == 1
    assert [done.report[name] for name in ("passed", "failed", "skipped")] == [2, 1, 1]
    assert done.report["slowest"][0] == [pytest.approx(0.3, abs=0.2), "test_planted.py::test_slow"]


def is_running(pid: int) -> bool:
    """Whether the process is there."""
    with suppress(ProcessLookupError):
        os.kill(pid, 0)
        return True
    return False


@dataclass(frozen=True)
class Begun:
    """A run whose test waits for ever; it has started a process with a session of its own, and left files."""

    process: subprocess.Popen[bytes]
    temporary: Path
    started: int  # the id of that process

    def left(self) -> tuple[bool, list[Path]]:
        """Whether that process is there, and what is in the folder for temporary files."""
        return is_running(self.started), list(self.temporary.iterdir())


@pytest.fixture
def begun(tmp_path: Path) -> Iterator[Begun]:
    """That run, after its test began."""
    planted = """
    import subprocess, tempfile, threading
    from pathlib import Path

    def test_a(tmp_path):
        Path(tempfile.mkdtemp(), "file").write_text("left")
        process = subprocess.Popen(["tail", "-f", "/dev/null"], start_new_session=True)
        Path("new").write_text(str(process.pid))
        Path("new").rename("started")
        threading.Event().wait()
    """
    command, env = planted_run(tmp_path, planted, "-n", "1")
    with subprocess.Popen(command, cwd=tmp_path, env=env) as process:
        try:
            until_blocking((tmp_path / "started").exists)
            yield Begun(process, tmp_path / "tmp", int((tmp_path / "started").read_text()))
        finally:
            process.kill()
    until_blocking(lambda: list((tmp_path / "tmp").iterdir()) == [])


def test_run_that_is_killed_leaves_no_process_and_no_file(begun: Begun) -> None:
    [folder] = begun.temporary.iterdir()
    assert folder.name == f"tests-run-{begun.process.pid}"
    begun.process.kill()
    until_blocking(lambda: begun.left() == (False, []), within=30.0)


def test_run_that_gets_sigterm_ends_all_that_it_started(begun: Begun) -> None:
    begun.process.terminate()
    assert begun.process.wait(60) == 128 + signal.SIGTERM
    assert begun.left() == (False, [])


def test_folders_of_runs_whose_process_is_gone_are_removed_by_the_next_run(tmp_path: Path) -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    command, env = planted_run(tmp_path, "")
    left, other = (tmp_path / "tmp" / f"tests-run-{pid}" for pid in (gone.pid, os.getpid()))
    for folder in (left, other):
        folder.mkdir()
        (folder / "file").write_text("left", encoding="utf-8")
    subprocess.run(command, cwd=tmp_path, env=env, check=True, capture_output=True, timeout=ENDS_WITHIN)
    assert list((tmp_path / "tmp").iterdir()) == [other]
