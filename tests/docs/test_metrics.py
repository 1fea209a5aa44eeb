"""docs/metrics.md has one row per metric, as the code has it, and no other."""

from __future__ import annotations

import re
from pathlib import Path

from gateway.api.routes import PATHS, PREFIXES
from gateway.metrics import METRICS

DOC = (Path(__file__).parents[2] / "docs" / "metrics.md").read_text(encoding="utf-8")
ROW = re.compile(r"^\| `(gateway_[a-z_]+)` \| (\w+) \| ([^|]+) \| ([^|]+) \|$", re.MULTILINE)


def test_every_metric_is_documented_with_its_kind_and_labels() -> None:
    documented = {name: (kind, tuple(re.findall(r"`(\w+)`", labels))) for name, kind, labels, _ in ROW.findall(DOC)}
    assert documented == {spec.name: (spec.kind, spec.labels) for spec in METRICS}


def test_every_metric_is_documented_once_and_in_the_order_of_the_code() -> None:
    assert [name for name, *_ in ROW.findall(DOC)] == [spec.name for spec in METRICS]


def test_every_label_is_explained() -> None:
    labels = {label for spec in METRICS for label in spec.labels} - {"kind", "version", "python"}
    assert labels == set(re.findall(r"^- `(\w+)`:", DOC, re.MULTILINE))


def test_every_endpoint_is_listed() -> None:
    (line,) = re.findall(r"^- `endpoint`: (.*)$", DOC, re.MULTILINE)
    served = {route.name for route in [*PATHS.values(), *PREFIXES.values()]}
    assert set(re.findall(r"`(\w+)`", line)) == {*served, "other"}


def test_metrics_that_the_text_names_exist() -> None:
    names = {spec.name for spec in METRICS}
    for name in re.findall(r"`(gateway_[a-z_]+?)(?:_total)?`", DOC):
        assert name in names
