"""Model and capability to an ordered list of candidates: by session or strategy, then fallbacks; no open circuits.

`Router.resolve(model, Chat)` returns every candidate for the call, best first. The router only orders them; the
dispatcher tries them and handles failures. The credentials of one target follow each other, and each call begins with
another one.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, count
from typing import TypeVar

from msgspec import Struct

from gateway import errors
from gateway.billing.price import Price
from gateway.catalog import Catalog, Model, WeightedTarget
from gateway.metrics import Metrics
from gateway.plugins.provider import CAPABILITIES, Provider, Target, capability_name
from gateway.routing.accepted_limit import AcceptedLimit
from gateway.routing.affinity import by_affinity, place_of
from gateway.routing.circuit_breaker import Circuit, CircuitKey
from gateway.routing.circuit_registry import CircuitRegistry
from gateway.routing.hidden_reasoning import HiddenReasoning, HiddenReasoningTargets

T = TypeVar("T")

SLICE = 0.002  # seconds of making groups in one turn of the loop
AT_LEAST = 1.0  # seconds of Retry-After, also while a probe runs: SDKs obey even a millisecond


class Candidate(Struct, frozen=True):
    """A target, the provider instance that serves it with one of its credentials, and its circuit."""

    provider: Provider
    target: Target
    model: Model
    circuit: Circuit
    reasoning: HiddenReasoning
    limits: AcceptedLimit
    costs: tuple[Price, ...] = ()  # what the operator pays for its calls
    place: bytes = b""  # its name in `affinity`
    weight: float = 1.0  # its part of the target's weight


class TargetGroup:
    """One target of a model with all its credentials."""

    __slots__ = ("_turn", "candidates", "weight")

    def __init__(self, candidates: Sequence[Candidate], weight: int) -> None:
        self.candidates = candidates
        self.weight = weight
        self._turn = count()

    def in_turn(self) -> Sequence[Candidate]:
        """Its candidates; each call begins with another credential."""
        if len(self.candidates) == 1:
            return self.candidates
        first = next(self._turn) % len(self.candidates)
        return [*self.candidates[first:], *self.candidates[:first]]

    @property
    def latency(self) -> float:
        """The lowest latency of its circuits, in seconds; one without a measurement counts as 0, to get calls."""
        return min(candidate.circuit.latency for candidate in self.candidates)

    @property
    def load(self) -> float:
        """Calls in flight, divided by the weight."""
        return sum(candidate.circuit.in_flight for candidate in self.candidates) / self.weight


class Router:
    """Orders the targets of a model."""

    def __init__(
        self,
        catalog: Catalog,
        providers: Mapping[str, Mapping[int, Provider]],  # by name and number of the credential
        *,
        health: CircuitRegistry | None = None,
        reasoning: HiddenReasoningTargets | None = None,
        rng: random.Random | None = None,
        makes_groups: bool = True,
    ) -> None:
        """Without `makes_groups`, `make_groups` is to be awaited before the first call."""
        self.catalog = catalog
        self.health = health or CircuitRegistry(Metrics())
        self._reasoning = reasoning or HiddenReasoningTargets()
        self._providers = providers
        self._groups: dict[tuple[str, type], list[TargetGroup]] = {}
        self._only: dict[tuple[str, type], list[Candidate]] = {}
        self._rng = rng or random.Random()  # noqa: S311 - spreads load, guards nothing
        self.health.keep(
            CircuitKey(item.target.provider, credential, item.target.model)
            for model in catalog.models.values()
            for item in model.targets
            for credential in providers.get(item.target.provider, ())
        )
        if makes_groups:
            for _ in self._make_groups():
                pass

    async def make_groups(self) -> None:
        """Make the groups of all models, in pieces between which the event loop does other work."""
        ends = time.monotonic() + SLICE
        for _ in self._make_groups():
            if time.monotonic() > ends:
                await asyncio.sleep(0)
                ends = time.monotonic() + SLICE

    def resolve(self, model: Model, capability: type, session: str = "") -> list[Candidate]:
        """Candidates in the order to try them; UnsupportedParameter when none has the capability.

        `session` names the session and its account; empty for a call without one.
        """
        key = (model.name, capability)
        all_closed = self.health.all_closed
        if all_closed:
            only = self._only.get(key)
            if only is not None:
                return only
        ordered = [
            candidate
            for name in (model.name, *model.fallbacks)
            for candidate in self._of_model(name, capability, session)
        ]
        if not ordered:
            self._refuse(model)
        if model.fallbacks:  # a fallback may share a target with the model, or be named twice
            ordered = _once_each(ordered)
        if len(ordered) == 1 and all_closed:
            self._only[key] = ordered  # nothing to order: the same answer for every call
        if all_closed:
            return ordered
        now = time.monotonic()
        ready = [candidate for candidate in ordered if candidate.circuit.ready(now)]
        if not ready:
            raise unavailable(ordered, now)
        return ready

    def _refuse(self, model: Model) -> None:
        if any(self._is_served(named) for named in self._models(model)):
            raise errors.UnsupportedParameter(f"The model '{model.name}' does not serve this endpoint", param="model")
        raise errors.NoHealthyUpstream()

    def _models(self, model: Model) -> Iterable[Model]:
        found = map(self.catalog.find, (model.name, *model.fallbacks))
        return [model for model in found if model is not None]

    def _is_served(self, model: Model) -> bool:
        return any(self._providers.get(item.target.provider) for item in model.targets)

    def _of_model(self, name: str, capability: type, session: str) -> Iterable[Candidate]:
        groups = self._capable(name, capability)
        if session and groups:
            model = self.catalog.models[self.catalog.aliases.get(name, name)]
            if model.affinity == "session":
                key, parts = session.encode(), [group.candidates for group in groups]
                if model.strategy != "in_order":  # otherwise the operator's order of targets stays
                    parts = [list(chain.from_iterable(parts))]
                return [one for part in parts for one in (by_affinity(part, key) if len(part) > 1 else part)]
        return [candidate for group in self._ordered(name, groups) for candidate in group.in_turn()]

    def _ordered(self, name: str, groups: list[TargetGroup]) -> list[TargetGroup]:
        if len(groups) < 2:
            return groups
        strategy = self.catalog.models[self.catalog.aliases.get(name, name)].strategy
        if strategy == "in_order":
            return groups
        # Weighted shuffle: each key is an exponential variate of rate `weight`, and the smallest goes first.
        shuffled = sorted(groups, key=lambda group: self._rng.expovariate(group.weight))
        if strategy == "least_latency":
            return sorted(shuffled, key=lambda group: group.latency)
        if strategy == "least_busy":
            return sorted(shuffled, key=lambda group: group.load)
        return shuffled

    def _capable(self, name: str, capability: type) -> list[TargetGroup]:
        name = self.catalog.aliases.get(name, name)
        found = self._groups.get((name, capability))
        if found is None:
            model = self.catalog.models.get(name)
            found = self._groups_of(model, capability) if model is not None else []
            self._groups[name, capability] = found
        return found

    def _make_groups(self) -> Iterator[None]:
        """Make the groups of one model after the other, so that events of other workers find their circuits."""
        for model in self.catalog.models.values():
            for endpoint in model.endpoints:
                if endpoint in CAPABILITIES:
                    self._capable(model.name, CAPABILITIES[endpoint])
            yield

    def _groups_of(self, model: Model, capability: type) -> list[TargetGroup]:
        found: list[TargetGroup] = []
        numbers: Counter[tuple[str, str]] = Counter()
        for item in model.targets:
            name = (item.target.provider, item.target.model)
            found.append(self._group(item, model, capability, numbers[name]))
            numbers[name] += 1
        return [group for group in found if group.candidates]

    def _group(self, item: WeightedTarget, model: Model, capability: type, same: int) -> TargetGroup:
        """`same`: how many targets before it have the same names."""
        target, limits = item.target, AcceptedLimit()
        able = {
            number: provider
            for number, provider in self._providers.get(target.provider, {}).items()
            if isinstance(provider, capability)
        }
        candidates = [
            Candidate(
                provider,
                target,
                model,
                self.health.circuit(target.provider, number, target.model, capability_name(capability)),
                self._reasoning.of(model, target),
                limits,
                item.costs,
                place_of(target.provider, target.model, number, same),
                item.weight / len(able),
            )
            for number, provider in able.items()
        ]
        return TargetGroup(candidates, item.weight)


def _once_each(candidates: Iterable[Candidate]) -> list[Candidate]:
    found: dict[int, Candidate] = {}
    for candidate in candidates:
        found.setdefault(id(candidate.circuit), candidate)
    return list(found.values())


def unavailable(candidates: Iterable[Candidate], now: float) -> errors.GatewayError:
    """The error when no candidate may be called; `retry_after` is the time until the first probe."""
    blocking = [candidate.circuit.blocking() for candidate in candidates]
    wait = max(AT_LEAST, min(circuit.until for circuit in blocking) - now)
    causes = {circuit.cause for circuit in blocking}
    if causes == {"limited"}:
        return errors.UpstreamRateLimited(retry_after=wait)
    if causes == {"credential"}:
        return errors.UpstreamAuthError()
    return errors.NoHealthyUpstream(retry_after=wait)
