"""The documented PromQL finds its metrics and labels in what a gateway really exposes."""

from __future__ import annotations

import asyncio
import os
import re
import signal

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.docs.promql import UP, parse
from tests.docs.test_promql import EXPRESSIONS, STORED
from tests.polling import until
from tests.processes.conftest import Yard
from tests.processes.served import MODELS


@pytest.mark.holds("metrics.md#five-questions-1")
async def test_counters_are_there_before_anything_has_happened_and_documented_expressions_find_their_metrics(
    yard: Yard,
) -> None:
    gateway = await yard.serve()

    async def complete() -> bool:
        metrics = await gateway.metrics()
        return metrics.get("gateway_database_up") == 1 and "gateway_models_unavailable{model=quick}" in metrics

    await until(complete)
    metrics = await gateway.metrics()
    zeros = [
        "gateway_store_restarts_total",
        "gateway_importer_forks_total",
        "gateway_requests_total{endpoint=chat,model=quick,outcome=ok,provider=fake}",
        "gateway_requests_total{endpoint=chat,model=quick,outcome=service_unavailable,provider=}",
        "gateway_upstream_errors_total{code=upstream_error,model=quick,provider=fake}",
        "gateway_notifications_total{channel=webhook,event=test,result=failed}",
        "gateway_models_unavailable{model=quick}",
    ]
    assert {name: metrics.get(name) for name in zeros} == dict.fromkeys(zeros, 0.0)
    assert metrics["gateway_store_up"] == 1
    assert 0 < metrics["gateway_data_dir_free_bytes"] < metrics["gateway_data_dir_size_bytes"]
    assert sum(name.startswith("gateway_configuration_info{") for name in metrics) == 1
    assert (await gateway.chat()).status == 200
    assert (await gateway.chat("none")).status == 403
    await gateway.command("accounts", "limit", "test", "--rpm", "1")
    assert (await gateway.chat()).status == 200
    assert (await gateway.chat()).status == 429
    shown: dict[str, set[str]] = {}
    names: set[str] = set()

    async def whole() -> bool:
        _, _, text = await gateway.side("/metrics")
        for family in text_string_to_metric_families(text):
            names.add(family.name)
            for sample in family.samples:
                shown.setdefault(sample.name, set()).update(sample.labels)
        return {
            "gateway_group_spend_total", "gateway_accounts_below", "gateway_journal_backlog_records",
            "gateway_journal_backlog_age_seconds", "gateway_refused_settlements", "gateway_importer_lag_lines",
        } <= shown.keys()  # fmt: skip

    await until(whole)
    for name, labels in shown.items():
        if name.startswith("gateway_") and name in STORED:
            assert labels == STORED[name], name
    seen = 0
    for expression in EXPRESSIONS:
        for selector in (one for one in parse(expression).selectors if one.metric != UP):
            assert re.sub("_(total|bucket|count|sum)$", "", selector.metric) in names
            if selector.metric in shown:
                seen += 1
                assert selector.labels <= shown[selector.metric]
    assert seen > 15
    os.kill(gateway.store_pid, signal.SIGKILL)

    async def restarted() -> bool:
        return (await gateway.metrics())["gateway_store_restarts_total"] == 1

    await until(restarted)


@pytest.mark.holds("operations/history.md#history-4")
async def test_gateway_serves_while_its_database_cannot_be_used_and_shows_that_and_a_store_that_hangs(
    yard: Yard,
) -> None:
    gateway = yard.make(MODELS + '\n[database]\nurl = "postgresql://127.0.0.1:1/none?user=me&password=secret"\n')
    await gateway.started()

    async def database_is_down() -> bool:
        return (await gateway.metrics()).get("gateway_database_up") == 0

    await asyncio.to_thread(gateway.create_key)
    assert (await gateway.chat()).status == 200
    await until(lambda: "the importer waits" in gateway.text)
    assert "secret" not in gateway.text
    await until(database_is_down)

    async def lagging() -> bool:
        return (await gateway.metrics()).get("gateway_importer_lag_seconds", 0) > 0

    await until(lagging)
    os.kill(gateway.store_pid, signal.SIGSTOP)

    async def store_is(state: int) -> bool:
        return (await gateway.metrics())["gateway_store_up"] == state

    try:
        await until(lambda: store_is(0))
    finally:
        os.kill(gateway.store_pid, signal.SIGCONT)
    await until(lambda: store_is(1))
