"""Model and capability to an ordered list of targets: weights spread the calls, order falls back.

`Router.resolve(model, Chat)` answers every place the call may go, best first. It only orders: who is tried, and what a
failure means, is the dispatcher's.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import TypeVar

from msgspec import Struct

from gateway.catalog import Catalog, Model, WeightedTarget
from gateway.errors import NoHealthyUpstream, UnsupportedParameter
from gateway.provider import Provider, Target

T = TypeVar("T")


class Candidate(Struct, frozen=True):
    """A target and the provider instance that serves it."""

    provider: Provider
    target: Target
    model: Model


class Router:
    """Orders the targets of a model."""

    def __init__(
        self, catalog: Catalog, providers: Mapping[str, Provider], *, rng: random.Random | None = None
    ) -> None:
        self.catalog = catalog
        self.providers = providers
        self._only: dict[tuple[str, type], list[Candidate]] = {}
        self._rng = rng or random.Random()  # noqa: S311 - spreads load, guards nothing

    def resolve(self, model: Model, capability: type) -> list[Candidate]:
        """Candidates in the order to try them; UnsupportedParameter when none has the capability."""
        only = self._only.get((model.name, capability))
        if only is not None:
            return only
        ordered = [*self._spread(model.targets, model)]
        for name in model.fallbacks:
            fallback = self.catalog.find(name)
            if fallback is not None:
                ordered += self._spread(fallback.targets, fallback)
        capable = [candidate for candidate in ordered if isinstance(candidate.provider, capability)]
        if ordered and not capable:
            raise UnsupportedParameter(f"The model '{model.name}' does not serve this endpoint", param="model")
        if not capable:
            raise NoHealthyUpstream()
        if len(ordered) == 1:
            self._only[model.name, capability] = capable  # nothing to order: the same answer for every call
        return capable

    def _spread(self, targets: tuple[WeightedTarget, ...], model: Model) -> list[Candidate]:
        loaded = [item for item in targets if item.target.provider in self.providers]
        if len(loaded) > 1:
            # Weighted shuffle: each key is an exponential variate of rate `weight`, and the smallest goes first.
            loaded = sorted(loaded, key=lambda item: self._rng.expovariate(item.weight))
        return [Candidate(self.providers[item.target.provider], item.target, model) for item in loaded]
