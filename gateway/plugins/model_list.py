"""The list of models that a provider's server serves: what a provider implements for `discover = true`.

::

    class Mine(Provider, Chat, ModelList):
        async def list_models(self, limits):
            answer = await self.upstream.send("GET", f"{self.base_url}/models", headers=…, timeouts=limits.timeouts)
            async with answer: document = await answer.read(limit=limits.most_bytes)
            return [ListedModel(name=row["id"]) for row in …]

The gateway checks names, numbers and prices; a provider only reads its server's form.
"""

from __future__ import annotations

import abc
from collections.abc import Mapping, Sequence
from decimal import Decimal, InvalidOperation
from typing import Any, Final

from msgspec import Struct

from gateway.http_client.timeouts import Timeouts


class ListLimits(Struct, frozen=True, kw_only=True):
    """Bounds of one question for a list."""

    timeouts: Timeouts = Timeouts(connect=5.0, first_byte=15.0, idle=10.0, total=30.0)
    most_bytes: int = 8 * 1024 * 1024
    most_models: int = 20_000  # entries beyond are left out


class ListedModel(Struct, frozen=True, kw_only=True):
    """One model of a list, as its server describes it; what it does not say is absent."""

    name: str
    endpoints: tuple[str, ...] = ()  # "chat", "embeddings", "images", "moderation", "rerank", "speech", "transcription"
    context_window: int | None = None
    max_output_tokens: int | None = None
    created: int | None = None  # Unix seconds
    #: In USD, with the keys of a price in a configuration: `input` per 1,000,000 tokens, `per_request`, ….
    price: Mapping[str, Any] | None = None


class ModelList(abc.ABC):
    """The provider can say which models its server serves."""

    @abc.abstractmethod
    async def list_models(self, limits: ListLimits) -> Sequence[ListedModel]:
        """The models; an `Upstream*` error if the server gives no list."""


_PER_TOKEN: Final = {
    "prompt": "input",
    "completion": "output",
    "internal_reasoning": "reasoning",
    "input_cache_read": "cached_input",
    "input_cache_write": "cache_write",
    "audio": "audio_input",
    "input_audio_cache": "cached_audio_input",
    "audio_output": "audio_output",
    "image_token": "image_input",
    "image_output": "image_output",
}
_EACH: Final = {"request": "per_request", "web_search": "per_web_search"}
#: An image of a prompt is counted in its tokens; a discount is in the other amounts.
_IN_OTHERS: Final = frozenset({"image", "discount"})
_ALWAYS: Final = frozenset({"prompt", "completion"})  # another amount of 0 means that it is not told apart


def openrouter_price(pricing: object) -> dict[str, Any] | None:
    """The price of `pricing` in OpenRouter's list, which has texts in USD per token; None without one.

    What is no number, or has no counterpart, is returned as it is, so that the check of prices refuses it.
    """
    if not isinstance(pricing, Mapping) or not pricing.keys() >= _ALWAYS:
        return None
    price: dict[str, Any] = {}
    for name, value in pricing.items():
        if name in _IN_OTHERS or (name not in _ALWAYS and _is_zero(value)):
            continue
        if name in _PER_TOKEN:
            price[_PER_TOKEN[name]] = _per_million(value)
        elif name in _EACH:
            price[_EACH[name]] = value
        else:
            price[str(name)[:40]] = value
    return price


def _per_million(value: object) -> object:
    number = _decimal(value)
    return value if number is None else format(number * 1_000_000, "f")


def _is_zero(value: object) -> bool:
    return value is None or _decimal(value) == 0


def _decimal(value: object) -> Decimal | None:
    """A finite number of a usual size."""
    if isinstance(value, bool) or not isinstance(value, (str, int, float, Decimal)) or len(str(value)) > 40:
        return None
    try:
        number = Decimal(str(value))
    except InvalidOperation:
        return None
    return number if number.is_finite() and -30 < number.adjusted() < 30 else None
