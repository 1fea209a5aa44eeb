"""Asks models of a gateway from a hook, over its API: a call of the key that the operator gives to the hook.

::

    class Options(Struct, frozen=True, forbid_unknown_fields=True):
        models: GatewayModels

    models = ModelClient(upstream, options.models)
    vector = await models.embed("text-embedding-3-small", "Hello")

So these calls have limits, prices and ledger lines of their own. Sharp edge: a model that a hook asks must not have the
same hook for that endpoint, or each question asks another one, until the time limit of the hook ends them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec
from msgspec import Meta, Struct

from gateway.config.secret import Secret
from gateway.errors import UpstreamInvalidResponse
from gateway.http_client.timeouts import Timeouts
from gateway.plugins.upstream_errors import raise_for_status
from gateway.schemas.scoring.moderation import ModerationResult

if TYPE_CHECKING:
    from gateway.http_client.upstream import Upstream

MOST_BYTES: Final = 1 << 20  # of an answer
MOST_NUMBERS: Final = 8192  # of a vector
_TIMEOUTS: Final = Timeouts(connect=2.0, first_byte=30.0, idle=10.0, total=60.0)  # the hook's own limit is shorter
_LOCAL: Final = ("http://127.0.0.1:", "http://localhost:", "http://[::1]:")


class GatewayModels(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Options of a hook that asks models: the address of the API, with `/v1`, and a key."""

    url: Annotated[str, Meta(min_length=1, max_length=2000)]
    api_key: Secret


class _Vector(Struct):
    embedding: list[float]


class _Vectors(Struct):
    data: list[_Vector]


class _Moderations(Struct):
    results: list[ModerationResult]


class ModelClient:
    """The models that one key may call."""

    def __init__(self, upstream: Upstream, models: GatewayModels) -> None:
        """ValueError for an address without encryption that leaves this machine."""
        if not models.url.startswith(("https://", *_LOCAL)):
            raise ValueError("the url of the models begins with https://, or names this machine")
        self._upstream, self._models = upstream, models

    async def embed(self, model: str, text: str) -> list[float]:
        """The vector of a text; an Upstream error if the model gives none."""
        body = {"model": model, "input": text, "encoding_format": "float"}
        found: list[_Vector] = (await self._ask("embeddings", body, _Vectors)).data
        if len(found) != 1 or not 0 < len(found[0].embedding) <= MOST_NUMBERS:
            raise UpstreamInvalidResponse(detail="the model gave no vector")
        return found[0].embedding

    async def moderate(self, model: str, texts: Sequence[str]) -> list[ModerationResult]:
        """What a moderation model says about each text; an Upstream error if it does not say it."""
        body = {"model": model, "input": list(texts)}
        results: list[ModerationResult] = (await self._ask("moderations", body, _Moderations)).results
        if len(results) != len(texts):
            raise UpstreamInvalidResponse(detail=f"the model gave {len(results)} results for {len(texts)} texts")
        return results

    async def _ask(self, path: str, body: dict[str, Any], kind: type[Any]) -> Any:
        key = self._models.api_key.reveal()
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {key}"}
        answer = await self._upstream.send(
            "POST",
            f"{self._models.url.rstrip('/')}/{path}",
            headers=headers,
            body=msgspec.json.encode(body),
            timeouts=_TIMEOUTS,
        )
        async with answer:
            await raise_for_status(answer, [key])
            content = await answer.read(limit=MOST_BYTES)
        try:
            return msgspec.json.decode(content, type=kind)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            raise UpstreamInvalidResponse(detail=f"no valid answer of {path}") from None
