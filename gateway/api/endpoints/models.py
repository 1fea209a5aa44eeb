"""`GET /v1/models` and `/v1/models/{id}`: the models that a caller may use."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from msgspec import structs

from gateway.accounts.authenticator import KeyView
from gateway.api.endpoints.codex_models import asks_for_codex, codex_models
from gateway.api.handler import KeyedHandler
from gateway.catalog import Catalog, Model, ModelRecord
from gateway.errors import ModelNotFound
from gateway.errors.gemini_form import GEMINI_ERRORS
from gateway.errors.messages_form import MESSAGES_ERRORS

#: Google's methods for an endpoint of a model.
GEMINI_METHODS: Mapping[str, tuple[str, ...]] = {
    "chat": ("generateContent", "streamGenerateContent", "countTokens"),
    "embeddings": ("embedContent", "batchEmbedContents"),
}


class _RecordHandler(KeyedHandler):
    """Answers with records of models."""

    endpoint_name = "models"

    def on_head(self) -> Awaitable[None] | None:
        """Errors have the form of the client's API, too."""
        if _is_googles(self):
            self.reply.error_form = GEMINI_ERRORS
        elif "anthropic-version" in self.headers:
            self.reply.error_form = MESSAGES_ERRORS
        return super().on_head()

    async def with_later_prices(self, records: Sequence[tuple[ModelRecord, Model]]) -> list[ModelRecord]:
        """The records, each with the announced prices of the caller's account.

        Only if there are any, the account's own prices are read: those that a worker knows are as old as its last call.
        """
        if not any(model.has_later_price for _, model in records):
            return [record for record, _ in records]
        assert self.key is not None
        catalog, account = self.services.catalog, self.services.ledger.terms
        await account.read(self.key.account)
        terms = account.of(self.key.account).terms
        return [
            structs.replace(record, later_prices=catalog.later_prices(model, terms))
            if model.has_later_price
            else record
            for record, model in records
        ]


class ModelsHandler(_RecordHandler):
    """Lists the models enabled for the caller, sorted by id."""

    async def get(self) -> None:
        catalog = self.services.catalog
        records = _permitted(catalog, await self.confirm(catalog.models))
        if _is_googles(self):
            self.send_json({"models": [_gemini_model(record) for record, _ in records]})
        elif "anthropic-version" in self.headers:
            self.send_json(_anthropic_list([record for record, _ in records]))
        else:
            document = {"object": "list", "data": await self.with_later_prices(records)}
            if asks_for_codex(self.exchange.head.start_line.path):
                document["models"] = codex_models(records)
            self.send_json(document)


class ModelHandler(_RecordHandler):
    """One model; an unknown model and a forbidden one get the same answer."""

    async def get(self) -> None:
        found = await _find_permitted(self)
        if _is_googles(self):
            self.send_json(_gemini_model(found[0]))
            return
        if "anthropic-version" in self.headers:
            self.send_json(_anthropic_record(found[0]))
            return
        [record] = await self.with_later_prices([found])
        self.send_json(record)


def _is_googles(handler: KeyedHandler) -> bool:
    """Whether the client is one of Google's API."""
    headers = handler.headers
    return handler.path.startswith("/v1beta/") or "x-goog-api-client" in headers or "x-goog-api-key" in headers


def _gemini_model(record: ModelRecord) -> dict[str, Any]:
    methods = [method for endpoint, names in GEMINI_METHODS.items() if endpoint in record.endpoints for method in names]
    shown = {"name": f"models/{record.id}", "version": "1", "displayName": record.id}
    limits = {"inputTokenLimit": record.context_window, "outputTokenLimit": record.max_output_tokens}
    known = {name: limit for name, limit in limits.items() if limit is not None}
    return {**shown, **known, "supportedGenerationMethods": methods}


async def _find_permitted(handler: KeyedHandler) -> tuple[ModelRecord, Model]:
    """The model that the path names; ModelNotFound if there is none that the caller may use."""
    found = handler.services.catalog.by_id.get(handler.argument)
    view = await handler.confirm([found[1].name] if found is not None else ())
    if found is None or not view.permits(found[1].name, found[1].groups):
        raise ModelNotFound(param="model")
    return found


def _permitted(catalog: Catalog, view: KeyView) -> list[tuple[ModelRecord, Model]]:
    """The models that the key may use."""
    return [(record, model) for record, model in catalog.records if view.permits(model.name, model.groups)]


def _anthropic_list(records: list[ModelRecord]) -> dict[str, Any]:
    """The list in the format of Anthropic clients."""
    data = list(map(_anthropic_record, records))
    ids = [record.id for record in records]
    return {"data": data, "first_id": ids[0] if ids else None, "last_id": ids[-1] if ids else None, "has_more": False}


def _anthropic_record(record: ModelRecord) -> dict[str, Any]:
    created = _rfc3339(record.created)
    shown = {"type": "model", "id": record.id, "display_name": record.id, "created_at": created}
    limits = {"max_input_tokens": record.context_window, "max_tokens": record.max_output_tokens}
    known = {name: limit for name, limit in limits.items() if limit is not None}
    return {**shown, "lifecycle": "deprecated" if record.shutdown_date else "active", **known}


def _rfc3339(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
