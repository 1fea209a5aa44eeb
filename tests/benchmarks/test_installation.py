"""`python -m benchmarks installation`: what it makes of its measurements."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from benchmarks.installation.command import BEFORE, NAME, written
from benchmarks.installation.commands import FEW as FEW_COMMANDS
from benchmarks.installation.commands import READING
from benchmarks.installation.exponents import exponent
from benchmarks.installation.filling import Filling, filled
from benchmarks.installation.place import InstallationPlace
from benchmarks.installation.requests import FEW, requests, values_of
from benchmarks.installation.samples import Document, Sample
from benchmarks.installation.size import Size
from benchmarks.installation.table import table_of
from benchmarks.page import DOCS


def sample(size: int, seconds: float, sent: int, status: int = 200) -> Sample:
    return Sample(kind="page", name="/p", size=size, status=status, seconds=seconds, sent=sent, memory=100 * 2**20)


def document(*samples: Sample) -> Document:
    machine: dict[str, str | int] = {"cpu": "a processor", "date": "2026-01-02", "tree": "abc"}
    return Document(machine=machine, sizes=[one.size for one in samples], samples=list(samples))


@pytest.mark.parametrize(
    ("costs", "expected"),
    [({100: 5.0, 10_000: 5.0}, 0.0), ({100: 1.0, 10_000: 100.0}, 1.0), ({10: 1.0, 100: 100.0, 1000: 10_000.0}, 2.0)],
)
def test_exponent_is_the_slope_of_the_logarithms(costs: dict[int, float], expected: float) -> None:
    assert exponent(costs) == pytest.approx(expected)


def test_floor_hides_small_differences() -> None:
    assert exponent({100: 0.001, 10_000: 0.004}, floor=0.02) < 0.05 < exponent({100: 0.001, 10_000: 0.004})


def test_table_shows_the_largest_size_and_both_exponents() -> None:
    table = table_of(document(sample(100, 0.1, 10_000), sample(10_000, 1.5, 1_000_000)), None)
    assert "| page `/p` | 1.0 MB | 1.5 s | – | 100 MiB | 0.55, 0.94 | – | – | – | – | – |\n" in table
    assert table.endswith("10,000 accounts; a processor, measured on 2026-01-02, tree abc.\n")


def test_table_says_what_failed() -> None:
    assert "1.0 KB (status 500)" in table_of(document(sample(100, 0.1, 1000, status=500)), None)


def test_pages_and_routes_of_the_tables_are_asked_for() -> None:
    names = {request.name for request in requests(values_of("key_1", "req_1"))}
    assert {"/site/accounts", "/accounts/{account}/keys/{key}", "/admin/v1/accounts", "/admin/v1/usage"} <= names


def test_few_requests_and_commands_are_among_all() -> None:
    assert {request.name for request in requests(values_of("key_1", "req_1"))} >= FEW
    assert READING.keys() >= FEW_COMMANDS


def test_installation_that_was_filled_is_not_filled_again(tmp_path: Path) -> None:
    before = Filling("key_1", "sk-gw-1", 400.0)
    (tmp_path / "filling.json").write_bytes(msgspec.json.encode(before))
    assert filled(InstallationPlace(tmp_path, tmp_path / "no-store", 1, 2, 3), Size(100)) == before


def test_table_of_the_page_equals_the_files() -> None:
    page = (DOCS / "scaling.md").read_text(encoding="utf-8")
    table = page.split(f"<!-- {NAME}:", 1)[1].split("-->\n", 1)[1].split(f"<!-- end of {NAME} -->", 1)[0]
    assert BEFORE.exists()
    assert table == written()
