"""All rules in the order in which an operator should look; at most `MOST` findings."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from gateway.attention import gateway_rules, provider_rules
from gateway.attention.finding import Finding, Observed

MOST = 50
RULES: tuple[Callable[[Observed], Iterator[Finding]], ...] = (
    gateway_rules.store,
    gateway_rules.settlements,
    gateway_rules.database,
    gateway_rules.audits,
    provider_rules.credentials,
    provider_rules.models,
    provider_rules.circuits,
    provider_rules.hooks,
    gateway_rules.configuration,
    gateway_rules.processes,
    gateway_rules.capacity,
    gateway_rules.accounts,
    gateway_rules.tokens,
    provider_rules.shutdowns,
)


def findings_of(observed: Observed) -> list[Finding]:
    """What needs an operator; faults first."""
    found = [finding for rule in RULES for finding in rule(observed)]
    return sorted(found, key=lambda one: one.severity != "fault")[:MOST]
