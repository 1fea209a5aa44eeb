"""Questions of nearly the same meaning: vectors of a model of the gateway, kept in the worker, within bounds.

Two requests are compared only if all but the last text of the user is the same: the model, the parameters, the system
prompt and the messages before. Each worker learns the questions that it has seen itself.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Annotated, Any, Final

from msgspec import Meta, Struct

from gateway import GatewayModels, ModelClient

if TYPE_CHECKING:
    from gateway import Upstream

MOST_SCOPES: Final = 1000
MOST_ASKED: Final = 1000  # calls whose vector waits for their answer
LONGEST: Final = 8000  # characters of a question that is compared


class Semantic(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The option `semantic`."""

    model: Annotated[str, Meta(min_length=1)]  # of embeddings
    models: GatewayModels
    threshold: Annotated[float, Meta(ge=0.5, le=1)] = 0.95  # of the cosine
    entries: Annotated[int, Meta(ge=1, le=10_000)] = 500  # questions of one account in each worker


class _Known(Struct):
    """A question and where its answer is."""

    frame: str
    vector: Any  # float32, of length 1
    digest: str


class Meanings:
    """The questions of all scopes."""

    def __init__(self, options: Semantic, upstream: Upstream) -> None:
        import numpy

        self._numpy = numpy
        self._options = options
        self._models = ModelClient(upstream, options.models)
        self._scopes: OrderedDict[str, OrderedDict[str, _Known]] = OrderedDict()  # by the digest of the request
        self._asked: OrderedDict[str, Any] = OrderedDict()  # vectors, by request id

    async def nearest(self, request_id: str, scope: str, frame: str, text: str) -> str | None:
        """The digest of the request with the nearest question; None if none is near enough."""
        if len(text) > LONGEST:
            return None
        numpy = self._numpy
        vector = numpy.asarray(await self._models.embed(self._options.model, text), dtype="float32")
        length = float(numpy.linalg.norm(vector))
        if not length or not numpy.isfinite(length):
            return None
        vector /= length
        _put(self._asked, request_id, vector, MOST_ASKED)
        known = [
            one
            for one in self._scopes.get(scope, {}).values()
            if one.frame == frame and one.vector.shape == vector.shape
        ]
        if not known:
            return None
        scores = numpy.stack([one.vector for one in known]) @ vector
        best = int(scores.argmax())
        return known[best].digest if scores[best] >= self._options.threshold else None

    def learn(self, request_id: str, scope: str, frame: str, digest: str) -> None:
        """The question of a call was answered, and the answer is stored under `digest`."""
        vector = self._asked.pop(request_id, None)
        if vector is None:
            return
        if scope not in self._scopes:
            _put(self._scopes, scope, OrderedDict(), MOST_SCOPES)
        _put(self._scopes[scope], digest, _Known(frame, vector, digest), self._options.entries)

    def forget(self, scope: str, digest: str) -> None:
        """The answer under `digest` is no longer stored."""
        if scope in self._scopes:
            self._scopes[scope].pop(digest, None)


def _put(table: OrderedDict[str, Any], name: str, value: Any, most: int) -> None:
    table.pop(name, None)
    while len(table) >= most:
        table.popitem(last=False)
    table[name] = value
