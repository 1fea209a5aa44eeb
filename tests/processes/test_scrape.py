"""The documented PromQL finds its metrics and labels in what a gateway really exposes."""

from __future__ import annotations

import asyncio
import re

from prometheus_client.parser import text_string_to_metric_families

from tests.docs.promql import parse
from tests.docs.test_promql import EXPRESSIONS, STORED
from tests.polling import until
from tests.processes.conftest import Yard


async def test_documented_expressions_find_their_metrics_in_a_scrape(yard: Yard) -> None:
    gateway = await yard.serve()
    assert (await gateway.chat()).status == 200
    assert (await gateway.chat("none")).status == 403
    await asyncio.to_thread(gateway.run, "accounts", "limit", "test", "--rpm", "1")
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

    await until(whole, within=60.0)
    for name, labels in shown.items():
        if name.startswith("gateway_") and name in STORED:
            assert labels == STORED[name], name
    seen = 0
    for expression in EXPRESSIONS:
        for selector in parse(expression).selectors:
            assert re.sub("_(total|bucket|count|sum)$", "", selector.metric) in names
            if selector.metric in shown:
                seen += 1
                assert selector.labels <= shown[selector.metric]
    assert seen > 15
