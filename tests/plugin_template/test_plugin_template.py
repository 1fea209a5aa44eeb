"""What a plugin author is given works as it stands: the template of `plugins new`, and the tutorial's package."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner

from gateway.cli import cli
from gateway.plugin_template import PluginTemplate
from tests.polling import ENDS_WITHIN

DOCS = Path(__file__).parents[2] / "docs"
TUTORIAL = (DOCS / "tutorial.md").read_text(encoding="utf-8")
PLUGINS = (DOCS / "plugins.md").read_text(encoding="utf-8")


class Author:
    """Somebody who writes a package, and an environment it is installed into."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.site = folder / "site"
        self.environment = {**os.environ, "PYTHONPATH": str(self.site), "PYTHONDONTWRITEBYTECODE": "1"}

    def new(self, name: str) -> Path:
        result = CliRunner().invoke(cli, ["plugins", "new", name, "--folder", str(self.folder)])
        assert result.exit_code == 0, result.output
        return self.folder / f"gateway-{name}"

    def install(self, package: Path) -> None:
        """Build a wheel and install it."""
        wheels = self.folder / "wheels"
        pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
        self.run([*pip, "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(wheels), str(package)])
        self.run([*pip, "install", "--no-deps", "--no-index", "--target", str(self.site), *map(str, wheels.iterdir())])

    def develop(self, package: Path) -> None:
        """What `pip install -e` makes of it: its folder and its metadata are found, and nothing is copied."""
        self.run([sys.executable, "setup.py", "--quiet", "egg_info"], cwd=package)
        self.environment["PYTHONPATH"] = str(package)

    def run(self, command: Sequence[str], *, cwd: Path | None = None) -> str:
        done = subprocess.run(
            command,
            cwd=cwd or self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=ENDS_WITHIN,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def tests(self, package: Path) -> str:
        return self.run([sys.executable, "-P", "-m", "pytest", "-q", "-p", "no:cacheprovider", "."], cwd=package)

    def plugins(self) -> dict[str, dict[str, object]]:
        shown = self.run([sys.executable, "-P", "-m", "gateway", "plugins", "--demo", "--json"])
        return {report["name"]: report for report in json.loads(shown)}


@pytest.fixture
def author(tmp_path: Path) -> Author:
    return Author(tmp_path)


def test_template_installs_loads_conforms_and_serves_a_chat(author: Author) -> None:
    package = author.new("acme-cloud")
    author.install(package)
    assert "4 passed" in author.tests(package)
    report = author.plugins()["acme-cloud"]
    assert (report["state"], report["capabilities"], report["source"]) == ("active", ["chat"], "gateway-acme-cloud")


def test_tutorial_builds_a_package_whose_tests_pass(author: Author) -> None:
    package = author.new("haiku")
    blocks = re.findall(r"^`([\w/]+\.py)`:\n\n```python\n(.*?)^```$", TUTORIAL, re.MULTILINE | re.DOTALL)
    assert len(blocks) == 4
    for path, text in blocks:
        assert (package / path).is_file(), f"{path} is no file of the template"
        (package / path).write_text(text, encoding="utf-8")
    author.develop(package)
    assert "3 passed" in author.tests(package)
    assert author.plugins()["haiku"]["state"] == "active"


@pytest.mark.slow  # a quick run has the same files in tests/testing/test_job_vendor.py
def test_page_on_plugins_builds_a_package_for_a_vendor_with_jobs(author: Author) -> None:
    package = author.new("jobs")
    blocks = re.findall(r"^`([\w/]+\.py)`:\n\n```python\n(.*?)^```$", PLUGINS, re.MULTILINE | re.DOTALL)
    assert len(blocks) == 5
    for path, text in blocks:
        (package / path).write_text(text, encoding="utf-8")
    author.develop(package)
    assert "4 passed" in author.tests(package)
    assert author.plugins()["jobs"]["state"] == "active"


@pytest.mark.parametrize("name", ["Acme", "1st", "a b", "a--b", "-a", "a/../b", "", "x" * 41])
def test_names_that_are_not_package_names_are_refused(author: Author, name: str) -> None:
    result = CliRunner().invoke(cli, ["plugins", "new", "--folder", str(author.folder), "--", name])
    assert result.exit_code == 2
    assert list(author.folder.iterdir()) == []


def test_the_name_of_an_existing_provider_is_refused(author: Author) -> None:
    result = CliRunner().invoke(cli, ["plugins", "new", "openai", "--folder", str(author.folder)])
    assert result.exit_code == 2
    assert "'openai' is there already" in result.output
    assert list(author.folder.iterdir()) == []


def test_an_existing_folder_is_never_written_into(author: Author) -> None:
    package = author.new("acme")
    (package / "setup.py").write_text("mine")
    result = CliRunner().invoke(cli, ["plugins", "new", "acme", "--folder", str(author.folder)])
    assert result.exit_code == 1
    assert (package / "setup.py").read_text() == "mine"


def test_every_placeholder_is_filled_in() -> None:
    files = PluginTemplate("acme-cloud").files()
    assert "gateway_acme_cloud/__init__.py" in files
    assert not [path for path, text in files.items() if "$" in text or "$" in path]
