"""The verdicts of `python -m benchmarks failover`, and the harness before this gateway."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from benchmarks.__main__ import bench as program
from benchmarks.failover.heard import Heard
from benchmarks.failover.provider import WHOLE, WORDS, Timing
from benchmarks.failover.situations import SITUATIONS, Seen, verdict_of

OF = {situation.name: situation for situation in SITUATIONS}
CUT = "".join(WORDS[:40])


def verdict(
    name: str, heard: Heard | None = None, *, attempts: tuple[float, ...] = (0.0,), calls: list[Heard] | None = None
) -> str:
    heard = heard or Heard(text=WHOLE, usage=True, model="healthy")
    seen = Seen(heard=calls or [heard], attempts=list(attempts), fallback="healthy", alive=True, recovers_at=60.0)
    return verdict_of(OF[name], seen)[0]


def test_the_whole_answer_has_sixty_words() -> None:
    assert len(WORDS) == 60
    assert "".join(WORDS) == WHOLE
    assert Timing().cut_after < 60


@pytest.mark.parametrize("text", [CUT, CUT + WHOLE, WHOLE.replace(" a ", "  a ", 1)], ids=["cut", "doubled", "changed"])
def test_an_answer_that_looks_whole_and_is_not_fails(text: str) -> None:
    assert verdict("S08", Heard(text=text)) == "fail"
    assert verdict("S08", Heard(text=text, error="cut")) == "safe"


def test_a_call_without_an_end_fails() -> None:
    assert verdict("S06", Heard(hung=True, error="no end")) == "fail"


def test_a_broken_rule_that_advises_makes_a_whole_answer_partial() -> None:
    assert verdict("S01", attempts=(0.0,)) == "partial"
    assert verdict("S01", attempts=(0.0, 0.5)) == "partial"
    assert verdict("S01", attempts=(0.0, 2.1)) == "pass"
    assert verdict("S03", attempts=(0.0,)) == "partial"


def test_too_many_attempts_fail() -> None:
    assert verdict("S04", attempts=tuple(range(7))) == "fail"
    assert verdict("S02", attempts=(0.0, 0.1, 0.2, 0.3, 0.4)) == "fail"
    assert verdict("S12", attempts=(0.0, 1.0)) == "fail"


def test_the_right_end_of_a_refused_prompt_is_the_error() -> None:
    assert verdict("S13", Heard(error="400 content policy")) == "pass"
    assert verdict("S13") == "partial"


def test_an_outage_passes_if_each_call_is_served_and_the_provider_is_used_again() -> None:
    served = [Heard(text=WHOLE)] * 20
    assert verdict("S15", calls=served, attempts=(0.0, 64.0)) == "pass"
    assert verdict("S15", calls=served, attempts=(0.0, 95.0)) == "fail"
    assert verdict("S15", calls=[Heard(error="503"), *served], attempts=(0.0, 64.0)) == "fail"


def test_the_harness_judges_this_gateway(tmp_path: Path) -> None:
    file = tmp_path / "failover.json"
    done = CliRunner().invoke(program, ["failover", "--only", "S05,S11,S13", "--json", str(file)])
    assert done.exit_code == 0, done.output
    assert [(row["name"], row["verdict"]) for row in json.loads(file.read_bytes())] == [
        ("S05", "pass"),
        ("S11", "pass"),
        ("S13", "pass"),
    ]
