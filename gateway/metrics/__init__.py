"""Every Prometheus metric, the counts of a worker and the totals of the supervisor.

A worker counts into plain dicts (an observation costs 0.3 µs; prometheus-client's own multiprocess values cost 3.1
µs). It sends the changes to the supervisor, which adds them up and serves the side port. Totals therefore survive a
killed worker, and nothing is written to disk. `METRICS` is the documented table. Sharp edge: labels come from the
catalogue and the error tree, never from callers; an unknown model is counted as "unknown".
"""

from __future__ import annotations

import platform
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import islice

import msgspec
from msgspec import Struct
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector, CollectorRegistry

from gateway.amounts import NANO
from gateway.billing.call_record import CallRecord
from gateway.errors.unavailable import STORE_ERRORS
from gateway.metrics.shown_models import ALWAYS, MOST, OTHER, ShownModels
from gateway.metrics.specs import FIRST_TOKEN, INTER_CHUNK, LATENCY, OVERHEAD, STORE
from gateway.metrics.specs import METRICS as METRICS
from gateway.metrics.specs import MetricSpec as MetricSpec
from gateway.version import __version__

UNKNOWN = "unknown"

_SPECS = {spec.name: spec for spec in METRICS}
_MODEL_AT = {spec.name: spec.labels.index("model") for spec in METRICS if "model" in spec.labels}

Labels = tuple[str, ...]
Key = tuple[str, Labels]


class MetricsDelta(Struct, array_like=True):
    """The changes since the last delta: lists of (name, labels, value)."""

    counters: list[tuple[str, Labels, float]] = []
    gauges: list[tuple[str, Labels, float]] = []
    histograms: list[tuple[str, Labels, list[float]]] = []


class Tally:
    """Sums over the calls of one endpoint, model, provider and outcome; `drain` makes a dozen metrics of them."""

    __slots__ = ("cached", "cost", "count", "duration", "first_token", "gap", "overhead", "tokens_in", "tokens_out")

    def __init__(self) -> None:
        self.count = self.tokens_in = self.tokens_out = self.cached = self.cost = 0
        self.duration = [0.0] * (len(LATENCY) + 2)
        self.overhead = [0.0] * (len(OVERHEAD) + 2)
        self.first_token = [0.0] * (len(FIRST_TOKEN) + 2)
        self.gap = [0.0] * (len(INTER_CHUNK) + 2)


class Metrics:
    """Counts of one process since the last `drain`."""

    def __init__(self) -> None:
        self._tallies: dict[tuple[str, str, str, str], Tally] = {}
        self._store = [0.0] * (len(STORE) + 2)
        self._in_flight: dict[str, int] = {}
        self._counters: dict[Key, float] = {}
        self._gauges: dict[Key, float] = {}
        self._histograms: dict[Key, list[float]] = {}
        self._changed_gauges: set[Key] = set()
        self._ended: set[Key] = set()

    @property
    def tallied(self) -> int:
        """Number of combinations of endpoint, model, provider and outcome that wait for a drain."""
        return len(self._tallies)

    def inc(self, name: str, labels: Labels = (), amount: float = 1.0) -> None:
        """Add to a counter."""
        key = (name, labels)
        self._counters[key] = self._counters.get(key, 0.0) + amount

    def set(self, name: str, labels: Labels, value: float) -> None:
        """Set a gauge."""
        key = (name, labels)
        if self._gauges.get(key) != value:
            self._gauges[key] = value
            self._changed_gauges.add(key)
        if self._ended:
            self._ended.discard(key)

    def end(self, name: str, labels: Labels) -> None:
        """Set a gauge to 0 for the last time; it takes no memory after the next drain."""
        self.set(name, labels, 0.0)
        self._ended.add((name, labels))

    def add(self, name: str, labels: Labels, amount: float) -> None:
        """Add to a gauge; a negative amount lowers it."""
        self.set(name, labels, self._gauges.get((name, labels), 0.0) + amount)

    def observe(self, name: str, labels: Labels, value: float) -> None:
        """Count one observation into a histogram. Its cells: one per bound, one for larger values, and the sum."""
        key = (name, labels)
        cells = self._histograms.get(key)
        bounds = _SPECS[name].buckets
        if cells is None:
            cells = self._histograms[key] = [0.0] * (len(bounds) + 2)
        cells[bisect_left(bounds, value)] += 1.0
        cells[-1] += value

    def settled(self, record: CallRecord, *, upstream_seconds: float, chunks: int) -> None:
        """Count a finished call."""
        key = (record.endpoint, record.model, record.provider, record.outcome)
        tally = self._tallies.get(key)
        if tally is None:
            tally = self._tallies[key] = Tally()
        tally.count += 1
        duration = record.duration
        cells = tally.duration
        cells[bisect_left(LATENCY, duration)] += 1.0
        cells[-1] += duration
        if record.provider:
            spent = duration - upstream_seconds if duration > upstream_seconds else 0.0
            cells = tally.overhead
            cells[bisect_left(OVERHEAD, spent)] += 1.0
            cells[-1] += spent
        if record.first_token is not None:
            _put(tally.first_token, FIRST_TOKEN, record.first_token)
            if chunks > 1:
                _put(tally.gap, INTER_CHUNK, (duration - record.first_token) / (chunks - 1))
        tally.tokens_in += record.tokens_in
        tally.tokens_out += record.tokens_out
        tally.cached += record.usage.in_cached
        if record.usage.estimated:
            self.inc("gateway_estimated_calls", (record.model,))
        tally.cost += record.cost

    def _spread(self, key: tuple[str, str, str, str], tally: Tally) -> None:
        """Add a tally to the counters and histograms of its metrics."""
        endpoint, model, provider, _ = key
        self.inc("gateway_requests", key, tally.count)
        for kind, tokens in (("in", tally.tokens_in), ("out", tally.tokens_out), ("cached", tally.cached)):
            if tokens:
                self.inc("gateway_tokens", (model, kind), tokens)
        if tally.cost:
            self.inc("gateway_cost", (model,), tally.cost / NANO)
        self._merge("gateway_request_duration_seconds", (endpoint, model), tally.duration)
        self._merge("gateway_overhead_seconds", (endpoint,), tally.overhead)
        self._merge("gateway_first_token_seconds", (model, provider), tally.first_token)
        self._merge("gateway_inter_chunk_seconds", (model, provider), tally.gap)

    def _merge(self, name: str, labels: Labels, cells: list[float]) -> None:
        if any(cells):
            known = self._histograms.get((name, labels))
            self._histograms[name, labels] = (
                cells if known is None else [a + b for a, b in zip(known, cells, strict=True)]
            )

    def clamped(self, model: str, provider: str) -> None:
        """Count a call whose upstream counted outside the bounds within which counts are believed."""
        self.inc("gateway_clamped_calls", (model, provider))

    def shortfall(self, model: str, uncollected: int, late: bool) -> None:
        """Count a settlement that charged less than its cost (by `uncollected` nano-units), or whose hold was lost."""
        if uncollected:
            self.inc("gateway_uncollected", (model,), uncollected / NANO)
        if late:
            self.inc("gateway_late_settlements", (model,))

    def refused(self, endpoint: str, model: str, outcome: str, duration: float) -> None:
        """Count a request that never reached a provider."""
        self.inc("gateway_requests", (endpoint, model, "", outcome))
        self.observe("gateway_request_duration_seconds", (endpoint, model), duration)

    def limited(self, model: str, limit: str, scope: str) -> None:
        """Count a request that a limit refused."""
        self.inc("gateway_limit_refusals", (model, limit, scope))

    def upstream_error(self, model: str, provider: str, code: str) -> None:
        """Count a failed attempt at a target."""
        self.inc("gateway_upstream_errors", (model, provider, code))

    def store_round_trip(self, seconds: float) -> None:
        """Count one Redis round trip."""
        cells = self._store
        cells[bisect_left(STORE, seconds)] += 1.0
        cells[-1] += seconds

    def begun(self, endpoint: str) -> None:
        """Count a request that begins."""
        self._in_flight[endpoint] = self._in_flight.get(endpoint, 0) + 1

    def ended(self, endpoint: str) -> None:
        """Count a request that ends."""
        self._in_flight[endpoint] -= 1

    def log_lines_dropped(self, lines: int) -> None:
        """Count lines of this process's log."""
        if lines:
            self.inc("gateway_log_lines_dropped", (), lines)

    def journal_backlog(self, records: int, size: int, age: float) -> None:
        """Set what the store has not confirmed of this process's journal: entries, bytes, and seconds of the oldest."""
        self.set("gateway_journal_backlog_records", (), float(records))
        self.set("gateway_journal_backlog_bytes", (), float(size))
        self.set("gateway_journal_backlog_age_seconds", (), age)

    def store_errors(self) -> None:
        """Count the store errors of this process since the last call."""
        for fate, errors in STORE_ERRORS.items():
            self.inc("gateway_store_errors", (fate.name.lower(),), errors)
        STORE_ERRORS.clear()

    def capacity(self, resource: str, used: float, limit: float) -> None:
        """Set what is in use of a resource, and its limit, if it has one."""
        self.set("gateway_capacity_used", (resource,), float(used))
        if limit:
            self.set("gateway_capacity_limit", (resource,), float(limit))

    def build_info(self) -> None:
        """Set `gateway_build_info`."""
        self.set("gateway_build_info", (__version__, platform.python_version()), 1.0)

    def drain(self, most: int | None = None) -> MetricsDelta | None:
        """The changes since the last drain, or None. At most `most` tallies are drained, the oldest first."""
        for key in list(islice(self._tallies, most)):
            self._spread(key, self._tallies.pop(key))
        self._merge("gateway_store_seconds", (), self._store)
        self._store = [0.0] * (len(STORE) + 2)
        for endpoint, count in self._in_flight.items():
            if self._gauges.get(("gateway_in_flight", (endpoint,))) != count:
                self.set("gateway_in_flight", (endpoint,), float(count))
        if not (self._counters or self._histograms or self._changed_gauges):
            return None
        delta = MetricsDelta(
            [(name, labels, value) for (name, labels), value in self._counters.items()],
            [(*key, self._gauges[key]) for key in self._changed_gauges],
            [(name, labels, cells) for (name, labels), cells in self._histograms.items()],
        )
        self._counters, self._histograms = {}, {}
        self._changed_gauges.clear()
        for ended in self._ended:
            self._gauges.pop(ended, None)
        self._ended.clear()
        return delta


def _put(cells: list[float], bounds: tuple[float, ...], value: float) -> None:
    cells[bisect_left(bounds, value)] += 1.0
    cells[-1] += value


class Totals(Collector):
    """The sum over all workers, and its Prometheus text. Samples are kept by name, then by labels."""

    def __init__(self, models: ShownModels | None = None) -> None:
        self.models = models or ShownModels()
        self._counters: defaultdict[str, dict[Labels, float]] = defaultdict(dict)
        self._gauges: defaultdict[str, dict[Labels, dict[str, float]]] = defaultdict(dict)
        self._histograms: defaultdict[str, dict[Labels, list[float]]] = defaultdict(dict)
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)

    def begin(self, counters: Iterable[tuple[str, Labels]], *, most_models: int = MOST) -> None:
        """Show these counters from now on, at 0 if they have counted nothing.

        If they have more than `most_models` models, the counters of a model begin when it is used.
        """
        known = list(counters)
        models = {labels[_MODEL_AT[name]] for name, labels in known if name in _MODEL_AT}
        for model in self.models.configure(models, most_models):
            self._end(model)
        for name, labels in known:
            at = _MODEL_AT.get(name)
            if at is None or self.models.fits_all or labels[at] in ALWAYS:
                self._counters[name].setdefault(self._labels(name, labels), 0.0)

    def merge(self, delta: MetricsDelta, *, source: str) -> None:
        """Add the counts of `source`, a worker."""
        for name, labels, value in delta.counters:
            counter, key = self._counters[name], self._labels(name, tuple(labels))
            counter[key] = counter.get(key, 0.0) + value
        for name, labels, value in delta.gauges:
            key = tuple(labels)
            self._gauges[name].setdefault(key, {})[source] = value
            if not value and name in _MODEL_AT and key[_MODEL_AT[name]] not in self.models:
                self._forget_source(name, key, source)
        for name, labels, cells in delta.histograms:
            histogram, key = self._histograms[name], self._labels(name, tuple(labels))
            known = histogram.get(key)
            histogram[key] = list(cells) if known is None else [a + b for a, b in zip(known, cells, strict=True)]

    def _forget_source(self, name: str, labels: Labels, source: str) -> None:
        """Keep no 0 of a model without a place: lists of providers can name new ones for ever."""
        gauge = self._gauges[name]
        del gauge[labels][source]
        if not gauge[labels]:
            del gauge[labels]
        gauge.setdefault(_with_model(labels, _MODEL_AT[name], OTHER), {})[source] = 0.0

    def _labels(self, name: str, labels: Labels) -> Labels:
        """The labels under which an event of a model is counted."""
        at = _MODEL_AT.get(name)
        if at is None:
            return labels
        model, left = self.models.use(labels[at])
        if left:
            self._end(left)
        return _with_model(labels, at, model)

    def _end(self, model: str) -> None:
        """Remove the counters and histograms of a model."""
        for name, at in _MODEL_AT.items():
            for samples in (self._counters[name], self._histograms[name]):
                for labels in [labels for labels in samples if labels[at] == model]:
                    del samples[labels]

    def forget(self, source: str) -> None:
        """Drop the gauges of a worker that ended; its counters and histograms stay."""
        for samples in self._gauges.values():
            for values in samples.values():
                values.pop(source, None)

    def gauges(self, name: str) -> dict[Labels, float]:
        """The values of a gauge by labels; of models without a place, as `text` has them."""
        return self._gauge_values(_SPECS[name])

    def counters(self, name: str) -> dict[Labels, float]:
        """The values of a counter by labels."""
        return dict(self._counters[name])

    def text(self, accept: str = "") -> tuple[bytes, str]:
        """The exposition in the format that `accept` names (Prometheus text or OpenMetrics), and its content type."""
        encoder, content_type = choose_encoder(accept)
        return encoder(self._registry), content_type

    def collect(self) -> Iterator[Metric]:
        """One family per metric, also for those without samples yet."""
        for spec in METRICS:
            yield self._family(spec)

    def describe(self) -> Iterable[Metric]:
        return []

    def _family(self, spec: MetricSpec) -> Metric:
        if spec.kind == "counter":
            counter = CounterMetricFamily(spec.name, spec.help, labels=spec.labels)
            for labels, value in sorted(self._counters[spec.name].items()):
                counter.add_metric(labels, value)
            return counter
        if spec.kind == "gauge":
            gauge = GaugeMetricFamily(spec.name, spec.help, labels=spec.labels)
            for labels, value in sorted(self._gauge_values(spec).items()):
                gauge.add_metric(labels, value)
            return gauge
        histogram = HistogramMetricFamily(spec.name, spec.help, labels=spec.labels)
        for labels, cells in sorted(self._histograms[spec.name].items()):
            histogram.add_metric(labels, _cumulative(spec.buckets, cells), sum_value=cells[-1])
        return histogram

    def _gauge_values(self, spec: MetricSpec) -> dict[Labels, float]:
        """The value of each series. Of models without a place, those that are not 0 are shown, while they are few."""
        total, at, found = max if spec.total == "max" else sum, _MODEL_AT.get(spec.name), dict[Labels, float]()
        left = self.models.most
        for labels, values in self._gauges[spec.name].items():
            if not values:
                continue
            value, shown = total(values.values()), labels
            if at is not None and labels[at] not in self.models:
                if value and left > 0:
                    left -= 1
                else:
                    shown = _with_model(labels, at, OTHER)
            found[shown] = found.get(shown, 0.0) + value
        return found


def _with_model(labels: Labels, at: int, model: str) -> Labels:
    return labels if labels[at] == model else (*labels[:at], model, *labels[at + 1 :])


def _cumulative(bounds: tuple[float, ...], cells: list[float]) -> list[tuple[str, float]]:
    total, buckets = 0.0, []
    for bound, count in zip((*map(str, bounds), "+Inf"), cells, strict=False):
        total += count
        buckets.append((bound, total))
    return buckets


def encode_delta(delta: MetricsDelta) -> bytes:
    """A delta as bytes, for the connection to the supervisor."""
    return msgspec.msgpack.encode(delta)


def decode_delta(raw: bytes) -> MetricsDelta:
    return msgspec.msgpack.decode(raw, type=MetricsDelta)
