"""Every circuit of one worker; reports changes to the metrics, the log and the other workers.

`CircuitRegistry.circuit(provider, credential, model, capability)` makes or finds the circuit of a target. The
catalogue bounds their number; `keep` removes those that a reload no longer needs. `every_target_fails` is true on a
machine that cannot reach its upstreams. Sharp edge: while `all_closed` is True, routing checks no circuit at all.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable
from functools import partial

from msgspec import structs

from gateway.log import gateway_log
from gateway.metrics import Metrics
from gateway.routing.circuit_breaker import SAID_BY_UPSTREAM, Circuit, CircuitKey

HOOKS = "hooks/"  # before the names of hooks, whose circuits count as those of providers; no provider has a slash
IN_USE = 600.0  # seconds since its last answer in which a target counts as used

CircuitEvent = Callable[[Circuit], None]
OutageEvent = Callable[[CircuitKey, str, float, bool], None]


class CircuitRegistry:
    """The circuits by `CircuitKey`."""

    def __init__(self, metrics: Metrics) -> None:
        self.on_event: CircuitEvent | None = None  # reports to the other workers
        self.on_outage: OutageEvent | None = None  # the same, of an outage that one account sees
        self._metrics = metrics
        self._circuits: dict[CircuitKey, Circuit] = {}
        self._open: dict[CircuitKey, str] = {}
        self.changes = 0  # of open circuits, since the start

    @property
    def all_closed(self) -> bool:
        """Whether no circuit is open."""
        return not self._open

    def circuit(self, provider: str, credential: int, model: str, capability: str = "") -> Circuit:
        """The circuit of a target, below those of its credential and of its provider."""
        own = self._find(CircuitKey(provider, credential), self._find(CircuitKey(provider), None))
        return self._find(CircuitKey(provider, credential, model, capability), own)

    def open_targets(self) -> set[CircuitKey]:
        """What is open: providers, credentials, and targets without their capability, which is open if any of it is."""
        return {structs.replace(key, capability="") for key in self._open}

    def provider(self, name: str) -> Circuit:
        """The circuit of all that a provider serves: it opens when the plugin's code keeps blocking the loop."""
        return self._find(CircuitKey(name), None)

    def all(self) -> list[Circuit]:
        """Every circuit, open or not."""
        return list(self._circuits.values())

    def every_target_fails(self, now: float) -> bool:
        """Whether `every_target_failed`, and no call may probe one yet."""
        return self.every_target_failed(now) and any(
            circuit.cause == "failures" and now < circuit.until for circuit in self._circuits.values()
        )

    def every_target_failed(self, now: float) -> bool:
        """Whether circuits are open because targets kept failing, and no target that is in use works."""
        if "failures" not in self._open.values():
            return False
        targets = [circuit for circuit in self._circuits.values() if circuit.key.model]
        if not any(circuit.cause == "failures" for circuit in targets):
            return False
        return not any(circuit.count.works(now, used_within=IN_USE) for circuit in targets if circuit.cause is None)

    def keep(self, targets: Iterable[CircuitKey]) -> None:
        """Remove every circuit except those of hooks, and of these targets, of any capability, and those above them."""
        kept: set[CircuitKey] = set()
        for key in targets:
            kept.update((key, CircuitKey(key.provider, key.credential), CircuitKey(key.provider)))
        for key in list(self._circuits):
            if structs.replace(key, capability="") not in kept and not key.provider.startswith(HOOKS):
                self._note(key, None)
                del self._circuits[key]

    def reset(self, providers: Collection[str]) -> None:
        """Close the circuits that opened for a credential: these providers have new secrets or settings."""
        for key, circuit in self._circuits.items():
            if key.provider in providers and circuit.cause in ("credential", "credit"):
                circuit.recovered()
                self._on_change(circuit)

    def apply_remote(self, key: CircuitKey, cause: str, seconds: float, *, was: str = "") -> None:
        """Another worker opened a circuit, or closed one that was open for the cause `was`.

        Without `was`, the worker is of an older release, which shares every cause: only the upstream's word is taken.
        Failures that another worker met are no reason to leave a target that has just answered this one.
        """
        now = time.monotonic()
        for circuit in self._meant_by(key):
            if cause:
                # An unknown cause comes from a worker of another release.
                if cause in SAID_BY_UPSTREAM or (cause in EXPLAINED and not circuit.count.answered_lately(now)):
                    circuit.apply(cause, now, seconds)  # type: ignore[arg-type]  # it was just looked at
            elif circuit.cause == was or (not was and circuit.cause in SAID_BY_UPSTREAM):
                circuit.recovered()
            self._note(circuit.key, circuit.cause)

    def due(self, key: CircuitKey) -> None:
        """An operator wants the next call to probe an open circuit."""
        for circuit in self._meant_by(key):
            circuit.due(time.monotonic())

    def _meant_by(self, key: CircuitKey) -> list[Circuit]:
        """The circuit of `key`; for a target without a capability, as an older release names it, those of all."""
        circuit = self._circuits.get(key)
        if circuit is not None or not key.model or key.capability:
            return [circuit] if circuit is not None else []
        return [other for other in self._circuits.values() if structs.replace(other.key, capability="") == key]

    def _find(self, key: CircuitKey, above: Circuit | None) -> Circuit:
        circuit = self._circuits.get(key)
        if circuit is None:
            circuit = self._circuits[key] = Circuit(key, above, self._on_change, on_outage=partial(self._outage, key))
        return circuit

    def apply_outage(self, key: CircuitKey, account: str, seconds: float) -> None:
        """Another worker saw a target fail an account's calls, or, with 0 seconds, answer again."""
        circuit = self._circuits.get(key)
        if circuit is not None:
            circuit.outages.apply(account, seconds, time.monotonic())

    def _outage(self, key: CircuitKey, account: str, seconds: float, is_local: bool) -> None:
        if self.on_outage is not None:
            self.on_outage(key, account, seconds, is_local)

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
        self.changes += 1
        if before is not None:
            del self._open[key]
            self._show(key, before)
        if cause is not None:
            self._open[key] = cause
            self._show(key, cause)

    def _show(self, key: CircuitKey, cause: str) -> None:
        """Set the gauge: 1 while the circuit of any capability is open for the cause."""
        target = structs.replace(key, capability="")
        is_open = any(
            other == cause and structs.replace(one, capability="") == target for one, other in self._open.items()
        )
        labels = (key.model, key.provider, str(key.number), cause)
        self._metrics.set("gateway_targets_open", labels, float(is_open))


EXPLAINED = {
    "failures": "it keeps failing",
    "limited": "it asked to slow down",
    "credential": "it refused the credential; check the provider's api_key and proxy",
    "credit": "its prepaid credit is gone; top it up at the provider",
    "plugin": "the provider plugin's own code keeps failing; it is quarantined",
}
