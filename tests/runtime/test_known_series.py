"""Every counter begins at 0 with the labels that the configuration makes known."""

from __future__ import annotations

from gateway.config.loader import parse
from gateway.metrics import METRICS, MetricsDelta, Totals
from gateway.runtime.known_series import known_series

SETTINGS = parse(
    {
        "providers": {
            "one": {"plugin": "openai", "api_key": "env:A", "discover": True},
            "two": {"plugin": "openai", "api_key": "env:B"},
        },
        "models": {
            "m": {
                "targets": [{"provider": "one", "model": "upstream"}],
                "fallbacks": ["n"],
                "endpoints": ["chat", "embeddings"],
                "free": True,
            },
            "n": {"provider": "two", "free": True},
        },
        "groups": {"default": {}, "vip": {}},
        "batches": {"enabled": True},
    }
)
LABELS = {spec.name: spec.labels for spec in METRICS if spec.kind == "counter"}


def test_every_counter_has_a_series_with_its_own_labels() -> None:
    found = list(known_series(SETTINGS))
    assert all(len(labels) == len(LABELS[name]) for name, labels in found)
    # Names of plugins, and what their hooks do, are known to the workers only, which begin these.
    assert LABELS.keys() - {name for name, _ in found} == {"gateway_hook_records_lost", "gateway_hook_runs"}
    assert len(found) == len(set(found))


def test_labels_are_those_of_models_targets_fallbacks_groups_and_causes() -> None:
    found = set(known_series(SETTINGS))
    assert {
        ("gateway_requests", ("embeddings", "m", "one", "ok")),
        ("gateway_requests", ("chat", "m", "two", "ok")),  # by its fallback
        ("gateway_requests", ("chat", "n", "", "service_unavailable")),
        ("gateway_upstream_errors", ("n", "two", "upstream_timeout")),
        ("gateway_circuit_opened", ("upstream", "one", "failures")),
        ("gateway_circuit_opened", ("", "two", "credential")),
        ("gateway_limit_refusals", ("unknown", "load", "gateway")),
        ("gateway_group_spend", ("vip",)),
        ("gateway_notifications", ("circuit.opened", "webhook", "failed")),
        ("gateway_store_restarts", ()),
        ("gateway_importer_forks", ()),
    } <= found


def test_counter_that_began_keeps_its_count() -> None:
    totals = Totals()
    totals.merge(MetricsDelta([("gateway_store_restarts", (), 2.0)]), source="supervisor")
    totals.begin(known_series(SETTINGS))
    text = totals.text()[0].decode()
    assert "gateway_store_restarts_total 2.0\n" in text
    assert "gateway_importer_forks_total 0.0\n" in text
