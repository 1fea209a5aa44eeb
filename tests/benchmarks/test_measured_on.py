"""Tables of measured figures say on which day and with which tree they were measured."""

from __future__ import annotations

import msgspec
from msgspec import structs

from benchmarks.costs import FILE, Costs, table_of
from benchmarks.growth import GrowthLine, GrowthReport, joined
from benchmarks.targets import machine_line

MACHINE: dict[str, str | int] = {"cpu": "a CPU", "cores": 2, "kernel": "6.18.44-x", "python": "3.11.2"}
FIRST: dict[str, str | int] = MACHINE | {"date": "2026-11-22", "tree": "7f88c08"}
SECOND: dict[str, str | int] = MACHINE | {"date": "2026-11-23", "tree": "daaf0f5 + changes"}
COSTS = msgspec.json.decode(FILE.read_bytes(), type=Costs)


def test_line_below_a_table_names_every_day_and_tree() -> None:
    line = "a CPU, 2 cores, Linux 6.18.44, Python 3.11.2, measured on "
    assert machine_line(FIRST) == line + "2026-11-22, tree 7f88c08."
    assert machine_line(FIRST, FIRST, SECOND) == line + "2026-11-22 and 2026-11-23, tree 7f88c08 and daaf0f5 + changes."
    assert machine_line(MACHINE) == line + "an unknown day, tree unknown."


def test_growth_from_two_documents_names_both_trees() -> None:
    def report(dimension: str, machine: dict[str, str | int]) -> GrowthReport:
        line = GrowthLine(dimension=dimension, title="", size=1, figures={}, ratios={}, faults=[])
        return GrowthReport(machine=machine, settings={"rounds": 5}, lines=[line], samples=[])

    whole = joined([report("accounts", FIRST), report("models", SECOND)])
    assert machine_line(whole.machine).endswith("on 2026-11-22 and 2026-11-23, tree 7f88c08 and daaf0f5 + changes.")
    replaced = joined([report("accounts", FIRST), report("accounts", SECOND)])
    assert machine_line(replaced.machine).endswith("on 2026-11-23, tree daaf0f5 + changes.")


def test_costs_have_a_row_for_the_importer_which_says_if_it_was_not_measured() -> None:
    measured = structs.replace(
        COSTS,
        machine=FIRST,
        cpu_per_request=120.0,
        importer_cpu_per_request=25.0,
        cpu_per_request_spread=180.0,
        importer_cpu_per_request_spread=46.0,
    )
    table = table_of(measured)
    assert "| gateway without the importer: CPU per request, one account | 95 µs |" in table
    assert [row for row in table.splitlines() if row.startswith("| importer: CPU per request")] == [
        "| importer: CPU per request | 25 µs |",
        "| importer: CPU per request | 46 µs |",
    ]
    assert "measured on 2026-11-22, tree 7f88c08" in table
    older = structs.replace(measured, importer_cpu_per_request=None, importer_cpu_per_request_spread=None)
    assert table_of(older).count("| importer: CPU per request | not measured |") == 2
