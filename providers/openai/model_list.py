"""`GET /models`: the list of models, as OpenAI, vLLM, Ollama, llama.cpp, OpenRouter and others write it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec
from msgspec import Raw, Struct

from gateway import ListedModel, ListLimits, ModelList, openrouter_price
from gateway.errors import UpstreamInvalidResponse

from .server import OpenAIServer


class WireModel(Struct):
    """One entry as it comes."""

    id: Any = None
    created: Any = None
    context_length: Any = None  # OpenRouter, Together
    context_window: Any = None  # Groq
    max_model_len: Any = None  # vLLM, SGLang
    max_completion_tokens: Any = None  # Groq
    meta: Any = None  # llama.cpp
    top_provider: Any = None  # OpenRouter
    architecture: Any = None
    pricing: Any = None


class WireList(Struct):
    """The answer as it comes."""

    data: list[Raw]


_decoder = msgspec.json.Decoder(WireList)
_models = msgspec.json.Decoder(WireModel)
#: Endpoints by what a model answers with, in OpenRouter's words.
_BY_OUTPUT: Final = {"text": "chat", "embeddings": "embeddings", "speech": "speech", "transcription": "transcription"}


class OpenAIModelList(OpenAIServer, ModelList):
    """`GET /models`."""

    async def list_models(self, limits: ListLimits) -> Sequence[ListedModel]:
        """One JSON answer, without redirects."""
        answer = await self.upstream.send(
            "GET", f"{self.base_url}/models", headers=self.headers, body=None, timeouts=limits.timeouts
        )
        async with answer:
            if answer.status != 200:
                await self.raise_for_status(answer)
            body = await answer.read(limit=limits.most_bytes)
        return await asyncio.to_thread(read_models, body, limits.most_models)  # thousands take longer than a call waits


def read_models(body: bytes, most: int) -> list[ListedModel]:
    """The first `most` models in a JSON body, one by one: one call of msgspec would hold up calls, in a thread too."""
    try:
        return [_listed(_models.decode(row)) for row in _decoder.decode(body).data[:most]]
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise UpstreamInvalidResponse(detail="the list of models is no list in OpenAI's form") from None


def _listed(row: WireModel) -> ListedModel:
    windows = (row.context_length, row.context_window, row.max_model_len, _member(row.meta, "n_ctx"))
    limits = (row.max_completion_tokens, _member(row.top_provider, "max_completion_tokens"))
    return ListedModel(
        name=row.id,
        endpoints=_endpoints(_member(row.architecture, "output_modalities")),
        context_window=next((window for window in windows if window is not None), None),
        max_output_tokens=next((limit for limit in limits if limit is not None), None),
        created=row.created,
        price=openrouter_price(row.pricing),
    )


def _endpoints(outputs: object) -> tuple[str, ...]:
    """A model that answers with text, and perhaps with more, is one of chats."""
    if not isinstance(outputs, list):
        return ()
    found = {_BY_OUTPUT[one] for one in outputs[:10] if isinstance(one, str) and one in _BY_OUTPUT}
    return ("chat",) if "chat" in found else tuple(sorted(found))


def _member(value: object, name: str) -> Any:
    return value.get(name) if isinstance(value, Mapping) else None
