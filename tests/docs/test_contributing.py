"""CONTRIBUTING.md, RELEASING.md, SECURITY.md and the pre-commit hooks agree with the tree."""

from __future__ import annotations

import configparser
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.conftest import SLOW_FOLDERS
from tests.polling import ENDS_WITHIN, PATIENCE
from tests.test_layers import RANKS

ROOT = Path(__file__).parents[2]
PAGES = ("CONTRIBUTING.md", "RELEASING.md", "SECURITY.md")
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
CHANGELOG = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
HOOKS = (ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8")


def section(heading: str) -> str:
    """The text of one section."""
    return CONTRIBUTING.split(f"\n## {heading}\n", 1)[1].split("\n## ", 1)[0]


def tox() -> configparser.ConfigParser:
    """The parsed tox.ini."""
    parser = configparser.ConfigParser(interpolation=None)
    parser.read(ROOT / "tox.ini", encoding="utf-8")
    return parser


@pytest.mark.parametrize("page", PAGES)
def test_every_named_file_exists(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    named = set(re.findall(r"`((?:\.?\w[\w.-]*/)+[\w.-]*|[A-Z]+\.md|setup\.py|tox\.ini)[ `]", text))
    named |= {target for target in re.findall(r"\]\(([^)#]+)\)", text) if "://" not in target}
    folders = {path.name for path in (ROOT / "tests").iterdir()}
    assert len(named) >= 2 or page == "SECURITY.md"
    for name in named:
        if "NAME" in name or name.startswith("dist/"):
            continue
        assert (ROOT / name).exists() or name.rstrip("/") in folders, name


def test_ranks_are_those_of_the_import_test() -> None:
    (block,) = re.findall(r"^```text\n(.*?)^```", section("Where things go"), re.MULTILINE | re.DOTALL)
    documented = [set(line.split(", ")) for line in block.splitlines()]
    assert documented == RANKS


def test_slow_folders_are_named_and_exist() -> None:
    (named,) = re.findall(
        r"The\s+tests\s+of (.*?)\s+are\s+slow\s+by\s+their\s+folder", section("Run the tests"), re.DOTALL
    )
    assert set(re.findall(r"`(\w+)`", named)) == SLOW_FOLDERS
    for folder in SLOW_FOLDERS:
        assert list((ROOT / "tests" / folder).glob("test_*.py")), folder


def test_every_tox_environment_that_is_named_exists() -> None:
    environments = {name.removeprefix("testenv:") for name in tox().sections()} | {"py311", "py312", "py313"}
    for page in (*PAGES, "README.md", ".ci/run"):
        for name in re.findall(r"tox -e (\w+)", (ROOT / page).read_text(encoding="utf-8")):
            assert name in environments, (page, name)


def test_readme_command_and_the_full_run_have_all_environments_of_ci() -> None:
    first = tox().get("tox", "env_list").split()
    full = tox().get("tox", "labels").partition("full = ")[2].split(", ")
    assert (first, full) == (
        ["lint", "type", "quick"],
        ["slow", "py311", "py312", "py313", "plugins", "site", "simulate"],
    )
    script = (ROOT / ".ci/run").read_text(encoding="utf-8")
    assert re.findall(r"^ *(?:\[ .*\] \|\| )?(?:TOX_SKIP_ENV=\S+ )?run_tox( .*)?$", script, re.MULTILINE) == [
        ' "$@"',
        "",
        " -m full",
    ]


def test_test_that_hangs_is_ended_after_its_waits_have_failed() -> None:
    options = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["pytest"]["ini_options"]
    [loop] = re.findall(r"--async-test-timeout=(\d+)", options["addopts"])
    assert PATIENCE < ENDS_WITHIN < int(loop) < options["faulthandler_timeout"] < options["timeout"] == 180
    assert options["timeout_method"] == "thread"


def test_requirements_of_the_tests_are_extras_of_the_package() -> None:
    for name in tox().sections():
        assert "requirements.txt" not in tox().get(name, "deps", fallback=""), name
    extras = {name: set(tox().get(f"testenv:{name}", "extras").split()) for name in ("quick", "lint", "type")}
    assert extras == {"quick": {"test"}, "lint": {"lint"}, "type": {"test", "type"}}


def test_pre_commit_runs_local_tools_that_dev_installs() -> None:
    assert set(re.findall(r"- repo: (\S+)", HOOKS)) == {"local"}
    languages, entries = re.findall(r"language: (\S+)", HOOKS), re.findall(r"entry: (\S+)", HOOKS)
    assert languages == ["system"] * len(entries)
    assert entries == ["ruff", "ruff", "mypy", "python", "python"]
    setup = (ROOT / "setup.py").read_text(encoding="utf-8")
    for tool in ("ruff", "mypy", "pytest", "pre-commit", "tox", "pytest-xdist", "pytest-cov"):
        assert re.search(rf'"{tool}[=><~]', setup), tool


def test_checklist_of_a_release_is_short() -> None:
    assert len((ROOT / "RELEASING.md").read_text(encoding="utf-8").splitlines()) < 30


def test_changelog_begins_with_what_is_unreleased_and_then_has_the_version_of_the_package() -> None:
    headings = re.findall(r"^## (.*)$", CHANGELOG, re.MULTILINE)
    [version] = re.findall(r'^    version="(.*)",$', (ROOT / "setup.py").read_text(encoding="utf-8"), re.MULTILINE)
    assert headings[0] == "[Unreleased]"
    assert re.fullmatch(rf"\[{re.escape(version)}\] - \d{{4}}-\d\d-\d\d", headings[1])
    assert max(map(len, CHANGELOG.splitlines())) <= 120


def test_first_release_is_one_page_of_the_changelog_without_states_before_it() -> None:
    first = CHANGELOG.split("\n## [0.1.0]", 1)[1]
    assert 40 < len(first.splitlines()) <= 80
    assert not re.search(r"Before, |old name|earlier version|### (Changed|Fixed|Removed)", first)


@pytest.mark.slow
def test_slow_tests_run_in_full_and_not_in_quick() -> None:
    options = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["pytest"]["ini_options"]
    assert "not slow" not in options["addopts"]
    for name in ("testenv", "testenv:quick"):
        runs = [line for line in tox().get(name, "commands").splitlines() if "run.py" in line]
        assert runs and all('-m "not slow"' in line for line in runs), name
    assert "-m slow" in tox().get("testenv:slow", "commands")
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", "-m", "not slow"]
    paths = ["tests/processes/test_reload.py", "tests/test_ids.py"]
    done = subprocess.run(
        [*command, *paths], cwd=ROOT, capture_output=True, text=True, timeout=ENDS_WITHIN, check=False
    )
    assert "test_ids.py::" in done.stdout and "test_reload.py::" not in done.stdout, done.stdout
