"""The judgement of a moderation model of the gateway on the texts of a request or an answer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Final

from msgspec import Meta, Struct

from gateway import GatewayModels, ModelClient, ModerationResult

from .rules import Found, Side

if TYPE_CHECKING:
    from gateway import Upstream

PIECE: Final = 8000  # characters
MOST_PIECES: Final = 32


class ModeratorOptions(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The option `moderation`."""

    model: Annotated[str, Meta(min_length=1)]
    models: GatewayModels
    sides: tuple[Side, ...] = ("request",)
    categories: Annotated[tuple[str, ...], Meta(max_length=100)] = ()  # empty: whatever the model flags
    threshold: Annotated[float, Meta(ge=0, le=1)] | None = None  # of a score; None: as the model says


class Moderator:
    """Asks one model."""

    def __init__(self, options: ModeratorOptions, upstream: Upstream) -> None:
        self._options = options
        self._models = ModelClient(upstream, options.models)

    async def check(self, side: Side, texts: Sequence[str]) -> None:
        """Found with the category that is refused; an Upstream error if the model does not answer."""
        if side not in self._options.sides:
            return
        whole = "\n".join(text for text in texts if text.strip())
        pieces = [whole[start : start + PIECE] for start in range(0, len(whole), PIECE)]
        if len(pieces) > MOST_PIECES:
            raise Found("moderation: too long")
        if not pieces:
            return
        for result in await self._models.moderate(self._options.model, pieces):
            if category := self._refused(result):
                raise Found(f"moderation: {category}")

    def _refused(self, result: ModerationResult) -> str:
        """The first category that is refused; empty if none is."""
        options = self._options
        named = options.categories or (*result.categories, *result.category_scores)
        for name in named:
            is_above = options.threshold is not None and result.category_scores.get(name, 0.0) >= options.threshold
            if is_above or (options.threshold is None and result.categories.get(name)):
                return name
        return "flagged" if result.flagged and not options.categories and options.threshold is None else ""
