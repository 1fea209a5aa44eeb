"""`GET /v1/models` and `/v1/models/{id}`: the models that a caller may use."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from gateway.accounts.authenticator import KeyView
from gateway.api.handler import KeyedHandler
from gateway.catalog import Catalog, ModelRecord
from gateway.errors import ModelNotFound


class ModelsHandler(KeyedHandler):
    """Lists the models enabled for the caller, sorted by id."""

    endpoint_name = "models"

    async def get(self) -> None:
        catalog = self.services.catalog
        records = _permitted(catalog, await self.confirm(catalog.models))
        if "anthropic-version" in self.headers:
            self.send_json(_anthropic_list(records))
        else:
            self.send_json({"object": "list", "data": records})


class ModelHandler(KeyedHandler):
    """One model; an unknown model and a forbidden one get the same answer."""

    endpoint_name = "models"

    async def get(self) -> None:
        name = self.argument
        found = next((pair for pair in self.services.catalog.records if pair[0].id == name), None)
        view = await self.confirm([found[1].name] if found is not None else ())
        if found is None or not view.permits(found[1].name, found[1].groups):
            raise ModelNotFound(param="model")
        self.send_json(found[0])


def _permitted(catalog: Catalog, view: KeyView) -> list[ModelRecord]:
    """The models that the key may use."""
    return [record for record, model in catalog.records if view.permits(model.name, model.groups)]


def _anthropic_list(records: list[ModelRecord]) -> dict[str, Any]:
    """The list in the format of Anthropic clients."""
    data = [
        {"type": "model", "id": record.id, "display_name": record.id, "created_at": _rfc3339(record.created)}
        for record in records
    ]
    ids = [record.id for record in records]
    return {"data": data, "first_id": ids[0] if ids else None, "last_id": ids[-1] if ids else None, "has_more": False}


def _rfc3339(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
