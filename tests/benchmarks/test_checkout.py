"""A checkout is run by its own interpreter, from its own folders."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from benchmarks.checkout import HERE, Checkout
from benchmarks.contenders import Place
from benchmarks.contenders.gateway import GatewayAt
from benchmarks.cores import Cores
from benchmarks.upstream import Upstream


def test_checkout_with_an_environment_of_its_own_is_run_by_its_interpreter(tmp_path: Path) -> None:
    assert Checkout(tmp_path).python == sys.executable
    python = tmp_path / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.touch()
    assert Checkout(tmp_path).python == str(python)
    assert GatewayAt(str(tmp_path)).command()[0] == str(python)


def test_this_checkout_is_run_by_the_interpreter_that_runs_the_bench() -> None:
    assert Checkout(HERE).python == sys.executable


def test_packages_of_another_checkout_take_precedence_under_their_installed_names(tmp_path: Path) -> None:
    for folder in ("gateway", "providers"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "__init__.py").touch()
    run = tmp_path / "run"
    run.mkdir()
    place = Place(run, cores=Cores((0,), (0,)), upstream=Upstream(port=1, pid=1), models=())
    path = Path(GatewayAt(str(tmp_path)).environment(place)["PYTHONPATH"])
    assert (path / "gateway").resolve() == tmp_path / "gateway"
    assert (path / "gateway_providers").resolve() == tmp_path / "providers"


def test_revision_names_the_commit_and_says_that_files_differ_from_it(tmp_path: Path) -> None:
    def git(*words: str) -> str:
        author = ("-c", "user.name=a", "-c", "user.email=a@example.com", "-c", "commit.gpgsign=false")
        done = subprocess.run(["git", "-C", str(tmp_path), *author, *words], capture_output=True, text=True, check=True)
        return done.stdout.strip()

    assert Checkout(tmp_path).revision == "unknown"
    git("init", "--quiet")
    (file := tmp_path / "a.py").write_text("before")
    git("add", ".")
    git("commit", "--quiet", "--message", "One file")
    commit = git("rev-parse", "--short", "HEAD")
    assert Checkout(tmp_path).revision == commit
    file.write_text("after")
    assert Checkout(tmp_path).revision == f"{commit} + changes"
