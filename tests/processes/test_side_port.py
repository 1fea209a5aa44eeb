"""The side port: what scrapers and balancers see."""

from __future__ import annotations

import json

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from gateway.metrics import METRICS
from gateway.testing.ports import free_ports
from tests.polling import until
from tests.processes.conftest import Serve, Yard
from tests.processes.served import MODELS, Served

UNREACHABLE = """
[providers.away]
plugin = "openai"
base_url = "http://127.0.0.1:{port}/v1"

[models.away]
provider = "away"
free = true
retries = 0
"""

OUT_OF_SERVICE = """
[providers.broken]
plugin = "openai"
key_of_a_newer_version = true

[models.broken]
provider = "broken"
free = true
"""


@pytest.mark.holds("README.md#operate-it-1", "README.md#operate-it-2")
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
    conditions = {"ready": True, "store": True, "workers": True, "upstreams": True, "accepting": True}
    assert (status, json.loads(text)) == (200, conditions)
    assert "Server" not in headers
    status, _, text = await gateway.side("/healthz")
    assert (status, json.loads(text)) == (200, {"live": True})
    assert (await gateway.side("/secrets"))[0] == 404


async def readiness(gateway: Served) -> tuple[int, bool | None]:
    status, _, text = await gateway.side("/readyz")
    return status, json.loads(text).get("upstreams")


async def test_machine_none_of_whose_providers_can_be_created_is_not_ready(yard: Yard) -> None:
    gateway = yard.make(OUT_OF_SERVICE)
    gateway.launch()

    async def is_out() -> bool:
        return await gateway.readiness() == 503 and await readiness(gateway) == (503, False)

    await until(is_out)
    assert "provider broken is out of service" in gateway.text


async def test_machine_that_reaches_none_of_its_upstreams_is_not_ready_until_one_answers(serve: Serve) -> None:
    [port] = free_ports(1)
    gateway = await serve(MODELS + UNREACHABLE.format(port=port))
    for _ in range(5):
        assert (await gateway.chat("away")).status == 502

    async def is_out() -> bool:
        return await readiness(gateway) == (503, False)

    async def is_back() -> bool:
        return await readiness(gateway) == (200, True)

    await until(is_out)
    assert (await gateway.chat("quick")).status == 200
    await until(is_back)
