"""The OpenAPI document has every route, and the answers of all routes are as it says."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from gateway.admin_api.openapi import openapi_document
from gateway.admin_api.route import JSON, PREFIX
from gateway.admin_api.table import ROUTES
from tests.admin_api.both_databases import database_address, database_url
from tests.admin_api.json_schema import faults
from tests.admin_api.samples import Samples

__all__ = ["database_address", "database_url"]

DOCUMENT: dict[str, Any] = json.loads(openapi_document(ROUTES))
COMPONENTS = DOCUMENT["components"]["schemas"]


@pytest.mark.holds("admin-api.md#admin-api-1")
def test_document_has_every_route_and_every_reference_leads_somewhere() -> None:
    described = {(method.upper(), path) for path, methods in DOCUMENT["paths"].items() for method in methods}
    assert described == {(route.method, PREFIX + route.path) for route in ROUTES}
    operations = [operation["operationId"] for methods in DOCUMENT["paths"].values() for operation in methods.values()]
    assert len(set(operations)) == len(operations)
    assert set(re.findall(r'"#/components/schemas/([^"]+)"', json.dumps(DOCUMENT))) <= COMPONENTS.keys()
    for route in ROUTES:
        operation = DOCUMENT["paths"][PREFIX + route.path][route.method.lower()]
        names = [parameter["name"] for parameter in operation["parameters"] if parameter["in"] == "path"]
        assert names == route.parameters
        assert ("requestBody" in operation) == (route.body is not None)


@pytest.mark.holds("admin-api.md#admin-api-1")
@pytest.mark.slow
async def test_answer_of_every_route_fits_the_document(api) -> None:
    async with api() as a:
        await a.as_operator()
        samples = Samples(a)
        for route in (*ROUTES, *ROUTES):  # the second time, the lists have objects of the first
            if (route.method, route.path) == ("DELETE", "/token"):
                continue  # it would end the token of the test
            sample = await samples.of(route)
            answer = await a.ask(route.method, sample.path, sample.body, headers=sample.headers)
            operation = DOCUMENT["paths"][PREFIX + route.path][route.method.lower()]
            assert answer.status == route.status, f"{route.method} {route.path}: {answer.document}"
            content = operation["responses"][str(route.status)]["content"]
            assert list(content) == [route.media_type] and answer.headers["Content-Type"] == route.media_type
            if route.media_type == JSON:
                found = list(faults(answer.document, content[JSON]["schema"], COMPONENTS))
                assert found == [], f"{route.method} {route.path}"
            if route.body is not None:
                schema = operation["requestBody"]["content"]["application/json"]["schema"]
                assert list(faults(sample.body, schema, COMPONENTS)) == []


@pytest.mark.holds("admin-api.md#requests-and-answers-2")
async def test_every_error_has_the_body_of_the_document(api) -> None:
    async with api() as a:
        schema = {"$ref": "#/components/schemas/Error"}
        answers = [await a.ask("GET", "/accounts"), await a.ask("POST", "/accounts", raw=b"{")]
        await a.as_operator()
        answers += [
            await a.ask("GET", "/nothing"),
            await a.ask("DELETE", "/accounts"),
            await a.ask("POST", "/accounts", raw=b"{"),
            await a.ask("POST", "/accounts", raw=b"x" * (2**20 + 1)),
            await a.ask("POST", "/accounts", raw=b"{}", headers={"Content-Type": "text/plain"}),
        ]
        assert [answer.status for answer in answers] == [401, 401, 404, 405, 400, 413, 415]
        assert answers[3].headers["Allow"] == "GET, HEAD, POST"
        for answer in answers:
            assert list(faults(answer.document, schema, COMPONENTS)) == []
            assert re.fullmatch(r"req_[0-9a-f]{32}", answer.headers["x-request-id"])
            assert answer.headers["X-Content-Type-Options"] == "nosniff" and "Server" not in answer.headers
            assert "frame-ancestors 'none'" in answer.headers["Content-Security-Policy"]
