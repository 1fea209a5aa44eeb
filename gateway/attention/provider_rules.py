"""What needs an operator at the providers: refused credentials, open circuits, models that nothing serves."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from datetime import timedelta
from urllib.parse import quote

from gateway.attention.finding import Finding, Observed, Severity, counted, listed
from gateway.routing.circuit_registry import EXPLAINED, HOOKS
from gateway.routing.circuit_sync import CircuitEvent

REFUSED = frozenset({"credential", "credit"})
HOOK_FAILS_FOR = 60.0  # seconds
OPEN_FOR = 300.0  # seconds: a shorter failure is what circuits are for
SHUT_DOWN_WITHIN = timedelta(days=30)


def provider_page(name: str) -> str:
    """The page of a provider."""
    return f"/site/providers/{quote(name, safe='')}"


def credentials(observed: Observed) -> Iterator[Finding]:
    """Credentials that their providers refuse."""
    refused: dict[str, dict[int, str]] = defaultdict(dict)
    for event in _known(observed):
        if event.cause in REFUSED and event.credential >= 0:
            refused[event.provider][event.key.number] = event.cause
    for name, found in sorted(refused.items()):
        number = observed.settings.providers[name].instances
        why = EXPLAINED[next(iter(found.values()))]
        if len(found) >= number:
            which = "Every credential" if number > 1 else "The credential"
            text = f"{which} of {name} is not used: {why}."
        else:
            numbers = listed(map(str, found))
            text = f"Credential {numbers} of {name} is not used, of {number}: {why}."
        severity: Severity = "fault" if len(found) >= number else "notice"
        yield Finding(f"credentials:{name}", severity, text, provider_page(name), "gatewaycredentialrefused")


def circuits(observed: Observed) -> Iterator[Finding]:
    """Targets that were not called for long because they fail."""
    failing: dict[str, list[CircuitEvent]] = defaultdict(list)
    for event in _known(observed):
        if event.cause in ("failures", "plugin"):
            failing[event.provider].append(event)
    for name, events in sorted(failing.items()):
        models = {event.model for event in events if event.model}
        what = f"{listed(models)} at {name}" if models else name
        verb = "are" if len(models) > 1 else "is"
        text = f"{what} {verb} not called: {EXPLAINED[events[0].cause]}."
        yield Finding(f"circuits:{name}", "fault", text, provider_page(name), "gatewayproviderfails", after=OPEN_FOR)


def hooks(observed: Observed) -> Iterator[Finding]:
    """Hooks that are not run, because they keep failing."""
    found = {one.provider.removeprefix(HOOKS) for one in observed.circuits if one.provider.startswith(HOOKS)}
    for name in sorted(found & observed.settings.hooks.keys()):
        goes_on = observed.settings.hooks[name].on_failure == "open"
        what = "calls go on without it" if goes_on else "calls of its models are refused"
        text = f"The hook {name} is not run, because it keeps failing; {what}."
        yield Finding(
            f"hooks:{name}", "fault", text, "/site/plugins", "a-hook-that-keeps-failing", after=HOOK_FAILS_FOR
        )


def models(observed: Observed) -> Iterator[Finding]:
    """Models without any target in use."""
    found = {model for machine in observed.machines for model in machine.state.models_unavailable}
    if found:
        verb = "has" if len(found) == 1 else "have"
        text = f"{counted(len(found), 'model')} {verb} no target in use: {listed(found)}."
        yield Finding("models", "fault", text, "/site/models?state=bad", "gatewaymodelunavailable")


def shutdowns(observed: Observed) -> Iterator[Finding]:
    """Models that their vendors shut down soon, or have shut down."""
    last = (observed.today + SHUT_DOWN_WITHIN).isoformat()
    found = {name: model.shutdown_date for name, model in observed.settings.models.items() if model.shutdown_date}
    soon = {name: day for name, day in found.items() if day <= last}
    if soon:
        first = min(soon.values())
        text = f"{counted(len(soon), 'model')} reach their shutdown date, the first on {first}: {listed(soon)}."
        text = text.replace("1 model reach their", "1 model reaches its", 1)
        yield Finding(f"shutdown:{first}", "notice", text, "/site/models", "a-model-that-is-shut-down")


def _known(observed: Observed) -> Iterator[CircuitEvent]:
    """The events of providers that the configuration has, in a fixed order."""
    known = observed.settings.providers
    yield from sorted((one for one in observed.circuits if one.provider in known), key=lambda one: one.field)
