"""The OpenAPI 3.1 document, made from the table of routes and the schemas of their queries, bodies and answers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec
from msgspec import structs

from gateway.admin_api import documents
from gateway.admin_api.route import JSON, PREFIX, AdminRoute
from gateway.version import __version__
from gateway.web.places import Limit

REF = "#/components/schemas/{name}"
DESCRIPTION = "Accounts, keys, money, people and history of a model gateway. Amounts are decimal text, never numbers."


def openapi_document(routes: Iterable[AdminRoute]) -> bytes:
    """The document as JSON."""
    routes = list(routes)
    kinds = [
        kind for route in routes for kind in (route.body, route.query, route.answer, route.error) if kind is not None
    ]
    schemas, components = msgspec.json.schema_components([documents.Error, *kinds], ref_template=REF)
    named = dict(zip(map(_key, [documents.Error, *kinds]), schemas, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        paths.setdefault(PREFIX + route.path, {})[route.method.lower()] = _operation(route, named, components)
    for kind in {route.query for route in routes if route.query is not None}:
        components.pop(kind.__name__, None)  # its fields are parameters
    document = msgspec.json.encode(
        {
            "openapi": "3.1.0",
            "info": {"title": "Model gateway admin API", "version": __version__, "description": DESCRIPTION},
            "paths": paths,
            "components": {
                "schemas": components,
                "securitySchemes": {"token": {"type": "http", "scheme": "bearer", "description": "An admin token."}},
            },
            "security": [{"token": []}],
        }
    )
    return document.replace(rb"$(?!\\n)", b"$")  # in other languages, `$` is not before a line feed at the end


def _operation(route: AdminRoute, schemas: dict[str, Any], components: dict[str, Any]) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": route.operation_id,
        "summary": route.summary,
        "tags": [route.operation_id.partition("_")[0]],
        "parameters": [*_parameters(route), *(_query(route, components) if route.query else [])],
        "responses": {
            str(route.status): {
                "description": "Done",
                "content": _content(schemas[_key(route.answer)], route.media_type),
            },
            "default": {"description": "An error", "content": _content(schemas[_key(route.error)])},
        },
    }
    if route.access.public:
        operation["security"] = []
    if route.access.scope is not None:
        operation["description"] = route.access.description()
    if route.limit is not None:
        error = _content(schemas[_key(documents.Error)])
        operation["responses"]["429"] = {"description": _limit_text(route.limit), "content": error}
    if route.body is not None:
        required = any(field.required for field in structs.fields(route.body))
        operation["requestBody"] = {"required": required, "content": _content(schemas[_key(route.body)])}
    return operation


def _parameters(route: AdminRoute) -> list[dict[str, Any]]:
    text = {"type": "string"}
    found = [{"name": name, "in": "path", "required": True, "schema": text} for name in route.parameters]
    if route.moves_money:
        schema = {"type": "string", "pattern": "^[!-~]{1,128}$"}
        found.append({"name": "Idempotency-Key", "in": "header", "required": True, "schema": schema})
    return found


def _query(route: AdminRoute, components: dict[str, Any]) -> list[dict[str, Any]]:
    assert route.query is not None
    schema = components[route.query.__name__]
    required = schema.get("required", [])
    return [
        {"name": name, "in": "query", "required": name in required, "schema": kind}
        for name, kind in schema["properties"].items()
    ]


def _limit_text(limit: Limit) -> str:
    of_all = f", all tokens and people together {limit.most_of_site}" if limit.most_of_site is not None else ""
    return f"Too many are under way: a token has at most {limit.most}{of_all}"


def _content(schema: Any, media_type: str = JSON) -> dict[str, Any]:
    return {media_type: {"schema": schema}}


def _key(kind: Any) -> str:
    return repr(kind)
