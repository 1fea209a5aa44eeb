"""Which models have no target that may be called, as a metric of each worker.

`note()` is called once a second and looks at the models only if a circuit has opened or closed since, or if other
providers are in use. Sharp edge: fallbacks do not count: a model whose own targets are open is shown although a
fallback may serve its calls.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from gateway.catalog import Catalog, Model
from gateway.metrics import Metrics
from gateway.routing.circuit_breaker import CircuitKey
from gateway.routing.circuit_registry import CircuitRegistry


class ModelHealth:
    """The models of one worker."""

    def __init__(self, metrics: Metrics, health: CircuitRegistry) -> None:
        self._metrics = metrics
        self._health = health
        self._models: Mapping[str, Model] = {}
        self._providers: Mapping[str, Collection[int]] = {}
        self._seen = -1  # changes of circuits; less than 0: look again
        self.has_target = True  # of any model, with a provider that could be created; also without models

    def use(self, catalog: Catalog, providers: Mapping[str, Collection[int]]) -> None:
        """Use other models, or other providers: the numbers of the credentials with which each could be created."""
        for name in self._models.keys() - catalog.models.keys():
            self._metrics.end("gateway_models_unavailable", (name,))
        self._models, self._providers, self._seen = catalog.models, providers, -1
        targets = (item.target for model in catalog.models.values() for item in model.targets)
        self.has_target = not catalog.models or any(providers.get(target.provider) for target in targets)

    def note(self) -> None:
        """Set the metric of each model."""
        if self._seen == self._health.changes:
            return
        self._seen = self._health.changes
        open_ones = self._health.open_targets()
        for name, model in self._models.items():
            is_served = any(
                self._is_usable(item.target.provider, item.target.model, open_ones) for item in model.targets
            )
            self._metrics.set("gateway_models_unavailable", (name,), float(not is_served))

    def _is_usable(self, provider: str, model: str, open_ones: Collection[CircuitKey]) -> bool:
        """Whether a target may be called with any of its credentials."""
        if CircuitKey(provider) in open_ones:
            return False
        return any(
            CircuitKey(provider, credential) not in open_ones
            and CircuitKey(provider, credential, model) not in open_ones
            for credential in self._providers.get(provider, ())
        )
