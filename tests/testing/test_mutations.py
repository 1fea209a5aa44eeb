"""The conformance kit catches twelve faults of a chat plugin, each by the case that docs/plugins.md names."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path

import pytest

from gateway.testing import CheckReport, FakeUpstream, check_provider
from tests.testing import mutants
from tests.testing.one_case import only
from tests.testing.reference_plugin import OPTIONS, Reference, vendor

DOCS = Path(__file__).parents[2] / "docs" / "plugins.md"
ENDINGS = {"length": partial(vendor, ended="paper"), "content_filter": partial(vendor, ended="censor")}
LEAVES = "leaving_closes_the_upstream"
GIVES_BACK = "connections_are_given_back"

#: A fault as docs/plugins.md words it: the plugins that have it, and the case that catches each.
FAULTS: dict[str, list[tuple[type[Reference], str]]] = {
    "answers are mixed between two callers": [(mutants.MixesAnswers, "calls_at_once_do_not_mix")],
    "`max_tokens` is ignored": [(mutants.IgnoresTheLimit, "output_limit_is_sent")],
    "the upstream's name of the model is ignored": [(mutants.IgnoresTheModel, "model_is_sent")],
    "the finish reason is always `stop`": [(mutants.AlwaysStops, "finish_reasons_are_told")],
    "usage is dropped": [(mutants.DropsUsage, "usage_is_told"), (mutants.CountsNothing, "usage_is_told")],
    "each chunk blocks the event loop for 50 ms": [
        (mutants.SleepsPerChunk, "loop_is_not_blocked"),
        (mutants.ComputesPerChunk, "loop_is_not_blocked"),
    ],
    "a cancellation is swallowed": [
        (mutants.AnswersACancelledCall, "cancellation_is_obeyed"),
        (mutants.EndsACancelledCall, "cancellation_is_obeyed"),
        (mutants.AnswersACancelledCall, "cancelling_closes_the_upstream"),
        (mutants.EndsACancelledCall, "cancelling_a_stream_closes_the_upstream"),
    ],
    "an answer, a connection or a session is left open": [
        (mutants.KeepsAnswersOpen, LEAVES),
        (mutants.KeepsItsSessionOpen, GIVES_BACK),
        (mutants.OpensAConnectionPerCall, GIVES_BACK),
    ],
    "the media type of the request or of an image is wrong": [
        (mutants.SaysOctets, "media_types_are_right"),
        (mutants.CallsAPngAJpeg, "media_types_are_right"),
    ],
    "a declared field is ignored": [
        (mutants.IgnoresTemperature, "declared_fields_are_sent"),
        (mutants.DeclaresEverything, "declared_fields_are_sent"),
    ],
    "a chunk follows the finish": [
        (mutants.TalksAfterTheEnd, "stream_is_sound"),
        (mutants.ThinksAfterTheEnd, "stream_is_sound"),
    ],
    "content is `None` or bytes": [
        (mutants.YieldsNone, "content_is_text"),
        (mutants.YieldsBytes, "content_is_text"),
    ],
}
MUTATIONS = [(mutant, case) for found in FAULTS.values() for mutant, case in found]


def check(provider: type[Reference]) -> CheckReport:
    return check_provider(provider, options=OPTIONS, upstream=FakeUpstream(vendor), endings=ENDINGS)


def test_reference_plugin_passes_every_case_that_concerns_it() -> None:
    report = check(Reference)
    assert {case for _, case in MUTATIONS} <= set(report)
    assert set(report.skipped) == {"tools_are_sent", "refusals_of_the_vendor_become_typed_errors"}
    assert report.notes == []


@pytest.mark.parametrize(("mutant", "case"), MUTATIONS, ids=lambda one: getattr(one, "__name__", one))
def test_fault_of_a_plugin_is_caught_by_its_case(
    mutant: type[Reference], case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    only(case, monkeypatch)
    monkeypatch.setattr("gateway.testing.turns.ATTEMPTS", 2)  # a plugin that blocks does so in each of them
    monkeypatch.setattr("gateway.testing.told_cases.SETTLES_WITHIN", 0.3)  # what is left open stays open
    monkeypatch.setattr("gateway.testing.whole_call_cases.SEEN_WITHIN", 0.3)
    try:
        with pytest.raises(AssertionError, match=rf"^{mutant.__name__}, {case}: (?!raised )"):
            check(mutant)
    finally:
        while mutants.KeepsItsSessionOpen.session:
            mutants.KeepsItsSessionOpen.session.pop().close()


def test_documentation_names_the_case_that_catches_each_fault() -> None:
    _, _, rest = DOCS.read_text(encoding="utf-8").partition("| fault | cases |\n| --- | --- |\n")
    table, _, _ = rest.partition("\n\n")
    rows = [line.strip("| ").split(" | ") for line in table.splitlines()]
    assert {fault: re.findall(r"`(\w+)`", cases) for fault, cases in rows} == {
        fault: list(dict.fromkeys(case for _, case in found)) for fault, found in FAULTS.items()
    }
    assert len(rows) == 12
