"""The side port: what scrapers and balancers see."""

from __future__ import annotations

import json

from prometheus_client.openmetrics.parser import text_string_to_metric_families

from gateway.metrics import METRICS
from tests.processes.conftest import Serve


async def test_side_port_serves_both_prometheus_formats_and_reports_health_in_booleans(serve: Serve) -> None:
    gateway = await serve()
    assert (await gateway.chat()).status == 200
    assert (await gateway.chat("nowhere")).status == 403

    status, headers, text = await gateway.side("/metrics")
    assert status == 200
    assert headers["Content-Type"].startswith("text/plain; version=")
    assert 'gateway_requests_total{endpoint="chat",model="unknown",outcome="model_not_permitted"' in text

    _, headers, text = await gateway.side("/metrics", accept="application/openmetrics-text; version=1.0.0")
    assert headers["Content-Type"].startswith("application/openmetrics-text")
    assert text.endswith("# EOF\n")
    families = {family.name: family for family in text_string_to_metric_families(text)}
    assert set(families) == {spec.name for spec in METRICS}
    (info,) = families["gateway_build_info"].samples
    assert info.value == 1

    status, headers, text = await gateway.side("/readyz")
    assert (status, json.loads(text)) == (200, {"ready": True, "store": True, "workers": True, "accepting": True})
    assert "Server" not in headers
    status, _, text = await gateway.side("/healthz")
    assert (status, json.loads(text)) == (200, {"live": True})
    assert (await gateway.side("/secrets"))[0] == 404
