"""Every circuit of one worker, and how its news reach the metrics, the log and the other workers.

`CircuitRegistry.circuit(provider, credential, model)` makes or finds the circuit of a target. Its number is bounded by
the catalogue; `keep` drops what a reload left behind. Sharp edge: with nothing open, `all_closed` is True and routing
looks at no circuit at all.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable

from gateway.log import gateway_log
from gateway.metrics import Metrics
from gateway.routing.circuit_breaker import Circuit, Place

CircuitEvent = Callable[[Circuit], None]


class CircuitRegistry:
    """The circuits by place."""

    def __init__(self, metrics: Metrics) -> None:
        self.on_event: CircuitEvent | None = None  # tells the other workers
        self._metrics = metrics
        self._circuits: dict[Place, Circuit] = {}
        self._open: dict[Place, str] = {}

    @property
    def all_closed(self) -> bool:
        """Whether every place may be called."""
        return not self._open

    def circuit(self, provider: str, credential: int, model: str) -> Circuit:
        """The circuit of a target, below those of its credential and of its provider."""
        whole = self._find(Place(provider), None)
        return self._find(Place(provider, credential, model), self._find(Place(provider, credential), whole))

    def provider(self, name: str) -> Circuit:
        """The circuit of all that a provider serves: it opens when the plugin's own code misbehaves."""
        return self._find(Place(name), None)

    def all(self) -> list[Circuit]:
        """Every circuit, open or not."""
        return list(self._circuits.values())

    def keep(self, circuits: Iterable[Circuit]) -> None:
        """Forget every circuit but these and those above them."""
        kept: set[Place] = set()
        for circuit in circuits:
            level: Circuit | None = circuit
            while level is not None:
                kept.add(level.place)
                level = level.above
        for place in self._circuits.keys() - kept:
            self._note(place, None)
            del self._circuits[place]

    def reset(self, providers: Collection[str]) -> None:
        """Their secrets or settings are new: what was held against the old credentials is over."""
        for place, circuit in self._circuits.items():
            if place.provider in providers and circuit.cause in ("credential", "credit"):
                circuit.recovered()
                self._told(circuit)

    def apply_remote(self, place: Place, cause: str, seconds: float) -> None:
        """Another worker opened (or, with no cause, closed) a circuit."""
        circuit = self._circuits.get(place)
        if circuit is None:
            return
        if not cause:
            circuit.recovered()
        elif cause in EXPLAINED:  # else it is of a worker of another release
            circuit.apply(cause, time.monotonic(), seconds)  # type: ignore[arg-type]  # it was just looked at
        self._note(place, circuit.cause)

    def _find(self, place: Place, above: Circuit | None) -> Circuit:
        circuit = self._circuits.get(place)
        if circuit is None:
            circuit = self._circuits[place] = Circuit(place, above, self._told)
        return circuit

    def _told(self, circuit: Circuit) -> None:
        place, cause = circuit.place, circuit.cause
        if self._circuits.get(place) is not circuit:
            return  # of a call that has outlived a reload
        if cause is None:
            gateway_log.info("%s answers again", place)
        else:
            seconds = circuit.until - time.monotonic()
            level = gateway_log.error if cause in ("credential", "credit", "plugin") else gateway_log.warning
            level("%s is left alone for %.0f s: %s", place, seconds, EXPLAINED[cause])
            self._metrics.inc("gateway_circuit_opened", (place.model, place.provider, cause))
        self._note(place, cause)
        if self.on_event is not None:
            self.on_event(circuit)

    def _note(self, place: Place, cause: str | None) -> None:
        before = self._open.get(place)
        if before == cause:
            return
        labels = (place.model, place.provider, str(max(place.credential, 0)))
        if before is not None:
            del self._open[place]
            self._metrics.set("gateway_targets_open", (*labels, before), 0.0)
        if cause is not None:
            self._open[place] = cause
            self._metrics.set("gateway_targets_open", (*labels, cause), 1.0)


EXPLAINED = {
    "failures": "it keeps failing",
    "limited": "it asked to slow down",
    "credential": "it refused the credential; check the provider's api_key and proxy",
    "credit": "its prepaid credit is gone; top it up at the provider",
    "plugin": "the provider plugin's own code keeps failing; it is quarantined",
}
