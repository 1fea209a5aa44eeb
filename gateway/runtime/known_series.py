"""The counters that can count something under a configuration, with their labels: each begins at 0.

Prometheus sees no increase in a series that begins with its first event, so an alert on it would miss that event.
Labels that only a running plugin or a caller decides are not known here; such a series begins when it is needed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from gateway.batches.batch import ENDED
from gateway.config.settings import DEFAULT_GROUP, ModelSettings, Settings, TargetSettings
from gateway.errors.unavailable import StoreFate
from gateway.errors.upstream import UpstreamError
from gateway.metrics import METRICS, UNKNOWN
from gateway.metrics.specs import CLOSE_CODES
from gateway.notifications.mailing import SUBJECTS
from gateway.routing.circuit_registry import HOOKS

Series = tuple[str, tuple[str, ...]]

#: Outcomes that the rules of conf/alerts.yaml compare with the rest.
OUTCOMES: Final = ("ok", "internal_error", "service_unavailable")
LIMITS: Final = (
    ("rpm", "key"), ("rpm", "account"), ("tpm", "key"), ("tpm", "account"), ("concurrency", "key"),
    ("concurrency", "account"), ("balance", "account"), ("spend", "account"), ("budget", "key"), ("budget", "member"),
    ("load", "gateway"), ("rate", "upstream"), ("circuit", "upstream"),
)  # fmt: skip
OF_MODEL: Final = (
    "gateway_unreadable_price_refusals", "gateway_cost", "gateway_uncollected", "gateway_late_settlements",
    "gateway_estimated_calls",
)  # fmt: skip


def known_series(settings: Settings) -> Iterator[Series]:
    """Name and labels of each counter. Those of a model that only a pattern names begin when it is used."""
    settings = settings.configured
    yield from ((spec.name, ()) for spec in METRICS if spec.kind == "counter" and not spec.labels)
    yield from _of_gateway(settings)
    for name, model in settings.models.items():
        yield from _of_model(name, model, settings)
    yield "gateway_limit_refusals", (UNKNOWN, "load", "gateway")  # refused before the model is read
    for name, provider in settings.providers.items():
        if provider.discover:
            yield from (("gateway_discovery_questions", (name, result)) for result in ("ok", "failed"))
        yield "gateway_stuck_tasks", (name,)
        causes = ("credential", "credit", "limited", "plugin")
        yield from (("gateway_circuit_opened", ("", name, cause)) for cause in causes)
    for name in settings.hooks:
        yield "gateway_stuck_tasks", (HOOKS + name,)
        yield "gateway_circuit_opened", ("", HOOKS + name, "plugin")


def _of_gateway(settings: Settings) -> Iterator[Series]:
    for port in ("v1", "side", *(["console"] if settings.console.enabled else [])):
        yield from (("gateway_connections_dropped", (port, kind)) for kind in ("idle", "unfinished", "refused"))
    workers = (f"worker-{number}" for number in range(settings.server.workers))
    helpers = ["importer", *(["console"] if settings.console.enabled else [])]
    if settings.batches.enabled:
        helpers.append("batches")
        yield from (("gateway_batches_ended", (status,)) for status in sorted(ENDED))
        yield from (("gateway_batch_lines", (result,)) for result in ("completed", "failed", "retried"))
    yield from (("gateway_process_cpu_seconds", (name,)) for name in ("supervisor", *helpers, *workers))
    yield from (("gateway_store_errors", (fate.name.lower(),)) for fate in StoreFate)
    codes = (*map(str, sorted(CLOSE_CODES)), "other")
    yield from (("gateway_websockets_closed", (code,)) for code in codes)
    yield from (("gateway_reloads", (result,)) for result in ("used", "refused", "failed"))
    yield from (("gateway_emails", (result,)) for result in ("sent", "failed"))
    yield from (("gateway_importer_failures", (cause,)) for cause in ("database", "refused", "store"))
    yield from (("gateway_group_spend", (group,)) for group in {*settings.groups, DEFAULT_GROUP, UNKNOWN})
    for event in SUBJECTS:
        for channel in ("webhook", "mail"):
            results = ("sent", "retried", "failed")
            yield from (("gateway_notifications", (event, channel, result)) for result in results)
        yield "gateway_notifications", (event, "any", "dropped")


def _of_model(name: str, model: ModelSettings, settings: Settings) -> Iterator[Series]:
    providers = {target.provider for target in _targets(model, settings)}
    for endpoint in model.endpoints:
        for provider in ("", *providers):
            outcomes = OUTCOMES if provider else OUTCOMES[1:]
            yield from (("gateway_requests", (endpoint, name, provider, outcome)) for outcome in outcomes)
    yield from ((counter, (name,)) for counter in OF_MODEL)
    yield from (("gateway_tokens", (name, kind)) for kind in ("in", "out", "cached"))
    yield from (("gateway_limit_refusals", (name, limit, scope)) for limit, scope in LIMITS)
    kinds = ("retry", "fallback", "hedge", "continuation")
    yield from (("gateway_extra_attempts", (name, kind)) for kind in kinds)
    if model.continues != "off":
        yield from (("gateway_joins", (name, form)) for form in ("prefill", "overlap", "restart", "refused"))
    for provider in providers:
        yield "gateway_clamped_calls", (name, provider)
        yield "gateway_hedges_lost", (name, provider)
        yield from (("gateway_upstream_errors", (name, provider, code)) for code in CODES)
    for target in model.all_targets:
        upstream = target.model or name
        yield from (("gateway_circuit_opened", (upstream, target.provider, cause)) for cause in ("failures", "limited"))


def _targets(model: ModelSettings, settings: Settings) -> Iterable[TargetSettings]:
    """Its own targets and those of its fallbacks, by name or alias."""
    aliases = {alias: name for name, found in settings.models.items() for alias in found.aliases}
    fallbacks = (settings.models[aliases.get(name, name)] for name in model.fallbacks)
    return (target for one in (model, *fallbacks) for target in one.all_targets)


def _codes(error: type[UpstreamError]) -> Iterator[str]:
    """The codes of a class of errors and of those below it."""
    yield error.default_code
    for below in error.__subclasses__():
        if below.__module__.partition(".")[0] == "gateway":  # not those of plugins
            yield from _codes(below)


CODES: Final = tuple(sorted(set(_codes(UpstreamError))))
