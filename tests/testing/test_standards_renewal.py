"""`python -m tests.standards` names what newer classes change."""

from __future__ import annotations

from enum import StrEnum
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Literal

import pytest
from pydantic import BaseModel, Field

from tests import standards

HERE = f"{__name__}."


class Colour(StrEnum):
    RED, BLUE = "red", "blue"


class Inner(BaseModel):
    colour: Colour


class Outer(BaseModel):
    id: str
    kind: Literal["a", "b"] = "a"
    inner: Annotated[list[Inner] | None, Field(alias="nested")] = None


def test_members_of_a_class_and_of_all_that_it_leads_to_are_listed() -> None:
    assert standards.classes_in({"outer": Outer | None}) == {
        f"{HERE}Outer": {"id": "required str", "kind": "Literal['a', 'b']", "nested": "NoneType | list[Inner]"},
        f"{HERE}Inner": {"colour": "required 'blue' | 'red'"},
    }


def test_what_came_went_or_changed_is_named() -> None:
    old = {"A": {"id": "required str", "gone": "int", "same": "int"}, "B": {}}
    new = {"A": {"id": "str", "same": "int", "new": "required float"}, "C": {}}
    assert standards.changes(old, new) == [
        "+ C",
        "- B",
        "+ A.new: required float",
        "- A.gone: int",
        "  A.id: required str → str",
    ]
    assert standards.changes(old, old) == []


def test_classes_of_each_package_are_compared() -> None:
    names = {name.partition(".")[0] for name in standards.installed_classes()}
    assert {"openai", "anthropic", "google", "openresponses_types"} <= names


def test_pinned_versions_are_those_that_are_installed() -> None:
    assert standards.packages() == {name: version(name) for name in standards.packages()}


def test_newest_versions_are_pinned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copy = tmp_path / "setup.py"
    copy.write_text(standards.SETUP.read_text(encoding="utf-8"), encoding="utf-8")
    monkeypatch.setattr(standards, "SETUP", copy)
    newer = {**standards.packages(), "openai": "99.0"}
    standards.write(newer)
    assert standards.packages() == newer
