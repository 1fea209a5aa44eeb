"""The PromQL of docs/metrics.md and the rules of conf/alerts.yaml name metrics and labels that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from gateway.metrics import METRICS, Totals
from tests.docs.promql import UP, parse

ROOT = Path(__file__).parents[2]
DOC = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")
RULES = yaml.safe_load((ROOT / "conf" / "alerts.yaml").read_text(encoding="utf-8"))

SPECS = {spec.name: spec for spec in METRICS}
ENDS = {"counter": ("_total",), "gauge": ("",), "histogram": ("_bucket", "_count", "_sum")}
#: The labels of each name as Prometheus stores it.
STORED = {
    f"{spec.name}{end}": {*spec.labels, *({"le"} if end == "_bucket" else ())}
    for spec in METRICS
    for end in ENDS[spec.kind]
}
OF_SCRAPE = frozenset({"instance", "job"})  # labels that Prometheus adds
ALERTS = [rule for group in RULES["groups"] for rule in group["rules"]]
EXPRESSIONS = [*re.findall(r"```promql\n(.*?)\n```", DOC, re.DOTALL), *(rule["expr"] for rule in ALERTS)]


def test_there_are_expressions_for_each_question() -> None:
    sections = re.split(r"^### ", DOC.partition("## Five questions")[2].partition("\n## ")[0], flags=re.MULTILINE)[1:]
    assert [section.splitlines()[0] for section in sections] == [
        "Am I losing money?",
        "Is a provider failing?",
        "Are customers refused, and why?",
        "Is the machine full?",
        "Is the database behind?",
    ]
    assert all("```promql" in section for section in sections)


@pytest.mark.holds("metrics.md#five-questions-1")
@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_expressions_name_metrics_and_labels_of_a_scrape(expression: str) -> None:
    families = {family.name for family in text_string_to_metric_families(Totals().text()[0].decode())}
    found = parse(expression)
    assert found.selectors
    for selector in found.selectors:
        if selector.metric == UP:
            assert selector.labels <= OF_SCRAPE
            continue
        assert selector.metric in STORED, selector.metric
        assert re.sub("_(total|bucket|count|sum)$", "", selector.metric) in families
        labels = STORED[selector.metric]
        assert selector.labels <= labels
        kind = "gauge" if selector.metric in SPECS else "counter"
        assert selector.has_range == (kind == "counter"), "counters are read as rates, gauges as they are"
    known = (STORED.get(selector.metric, set()) for selector in found.selectors)
    assert found.groups <= OF_SCRAPE.union(*known)


@pytest.mark.parametrize("rule", ALERTS, ids=lambda rule: rule["alert"])
def test_rules_have_what_prometheus_wants(rule: dict[str, object]) -> None:
    assert set(rule) <= {"alert", "expr", "for", "labels", "annotations"}
    assert re.fullmatch(r"Gateway[A-Za-z]+", str(rule["alert"]))
    assert re.fullmatch(r"\d+[smhd]", str(rule.get("for", "0s")))
    assert rule["labels"] in ({"severity": "warning"}, {"severity": "critical"})
    name = str(rule["alert"])
    assert isinstance(rule["annotations"], dict)
    assert rule["annotations"]["runbook"] == f"docs/runbook.md#{name.lower()}"
    used = set(re.findall(r"\$labels\.(\w+)", str(rule["annotations"])))
    assert used <= parse(str(rule["expr"])).groups


def test_names_of_rules_differ() -> None:
    names = [rule["alert"] for rule in ALERTS]
    assert len(names) == len(set(names)) > 10


@pytest.mark.parametrize("wrong", ["sum(rate(a[5m]))", "rate(gateway_cost_total[5x])", "sum(gateway_cost_total", "x)"])
def test_expressions_that_are_not_well_formed_are_found(wrong: str) -> None:
    with pytest.raises(AssertionError):
        parse(wrong)
