"""Every circuit of one worker; reports changes to the metrics, the log and the other workers.

`CircuitRegistry.circuit(provider, credential, model)` makes or finds the circuit of a target. The catalogue bounds
their number; `keep` removes those that a reload no longer needs. Sharp edge: while `all_closed` is True, routing checks
no circuit at all.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable

from gateway.log import gateway_log
from gateway.metrics import Metrics
from gateway.routing.circuit_breaker import Circuit, CircuitKey

CircuitEvent = Callable[[Circuit], None]


class CircuitRegistry:
    """The circuits by `CircuitKey`."""

    def __init__(self, metrics: Metrics) -> None:
        self.on_event: CircuitEvent | None = None  # reports to the other workers
        self._metrics = metrics
        self._circuits: dict[CircuitKey, Circuit] = {}
        self._open: dict[CircuitKey, str] = {}

    @property
    def all_closed(self) -> bool:
        """Whether no circuit is open."""
        return not self._open

    def circuit(self, provider: str, credential: int, model: str) -> Circuit:
        """The circuit of a target, below those of its credential and of its provider."""
        whole = self._find(CircuitKey(provider), None)
        return self._find(CircuitKey(provider, credential, model), self._find(CircuitKey(provider, credential), whole))

    def provider(self, name: str) -> Circuit:
        """The circuit of all that a provider serves: it opens when the plugin's own code fails."""
        return self._find(CircuitKey(name), None)

    def all(self) -> list[Circuit]:
        """Every circuit, open or not."""
        return list(self._circuits.values())

    def keep(self, circuits: Iterable[Circuit]) -> None:
        """Remove every circuit except these and those above them."""
        kept: set[CircuitKey] = set()
        for circuit in circuits:
            kept.update(level.key for level in circuit.levels)
        for key in self._circuits.keys() - kept:
            self._note(key, None)
            del self._circuits[key]

    def reset(self, providers: Collection[str]) -> None:
        """Close the circuits that opened for a credential: these providers have new secrets or settings."""
        for key, circuit in self._circuits.items():
            if key.provider in providers and circuit.cause in ("credential", "credit"):
                circuit.recovered()
                self._on_change(circuit)

    def apply_remote(self, key: CircuitKey, cause: str, seconds: float) -> None:
        """Another worker opened (or, with no cause, closed) a circuit."""
        circuit = self._circuits.get(key)
        if circuit is None:
            return
        if not cause:
            circuit.recovered()
        elif cause in EXPLAINED:  # an unknown cause comes from a worker of another release
            circuit.apply(cause, time.monotonic(), seconds)  # type: ignore[arg-type]  # it was just looked at
        self._note(key, circuit.cause)

    def _find(self, key: CircuitKey, above: Circuit | None) -> Circuit:
        circuit = self._circuits.get(key)
        if circuit is None:
            circuit = self._circuits[key] = Circuit(key, above, self._on_change)
        return circuit

    def _on_change(self, circuit: Circuit) -> None:
        key, cause = circuit.key, circuit.cause
        if self._circuits.get(key) is not circuit:
            return  # the call began before a reload
        if cause is None:
            gateway_log.info("%s answers again", key)
        else:
            seconds = circuit.until - time.monotonic()
            level = gateway_log.error if cause in ("credential", "credit", "plugin") else gateway_log.warning
            level("%s is not called for %.0f s: %s", key, seconds, EXPLAINED[cause])
            self._metrics.inc("gateway_circuit_opened", (key.model, key.provider, cause))
        self._note(key, cause)
        if self.on_event is not None:
            self.on_event(circuit)

    def _note(self, key: CircuitKey, cause: str | None) -> None:
        before = self._open.get(key)
        if before == cause:
            return
        labels = (key.model, key.provider, str(max(key.credential, 0)))
        if before is not None:
            del self._open[key]
            self._metrics.set("gateway_targets_open", (*labels, before), 0.0)
        if cause is not None:
            self._open[key] = cause
            self._metrics.set("gateway_targets_open", (*labels, cause), 1.0)


EXPLAINED = {
    "failures": "it keeps failing",
    "limited": "it asked to slow down",
    "credential": "it refused the credential; check the provider's api_key and proxy",
    "credit": "its prepaid credit is gone; top it up at the provider",
    "plugin": "the provider plugin's own code keeps failing; it is quarantined",
}
