"""What happened in each part of a run, counted and written as a table of Markdown."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct, field

from tests.chaos.traffic import percentile
from tests.fleet.calls import Attempt, Call
from tests.fleet.pages import Page

STREAMS = ("stream", "long")
HEAD = """| part | s | calls | attempts | failed attempts: on the sick gateway, in flight | sent to it later \
| elsewhere | failed calls: in flight there | others | p50 ms | p99 ms | pages | failed pages |
|---|---|---|---|---|---|---|---|---|---|---|---|---|"""


class Part(Struct):
    """A part of a run: a fault with the time to recover from it. `sick`: the address of a gateway that it is about."""

    name: str
    started: float
    ended: float = 0.0
    sick: str = ""
    sick_since: float = 0.0
    note: str = ""


class Counts(Struct):
    """What happened in a part."""

    calls: int = 0
    attempts: int = 0
    attempts_failed: Counter[str] = field(default_factory=Counter)  # by place
    calls_failed: Counter[str] = field(default_factory=Counter)  # by place
    kinds: Counter[str] = field(default_factory=Counter)  # of failures, by kind of call, place and failure
    seconds: list[float] = field(default_factory=list)
    pages: int = 0
    pages_failed: Counter[str] = field(default_factory=Counter)


def place(attempt: Attempt, part: Part, served_by: Mapping[str, str]) -> str:
    """Where an attempt failed: `in flight` on the sick gateway, `later` on it, or `elsewhere`."""
    if not part.sick or served_by.get(attempt.name) != part.sick:
        return "elsewhere"
    return "in flight" if attempt.started <= part.sick_since else "later"


def count(part: Part, calls: Iterable[Call], pages: Iterable[Page], served_by: Mapping[str, str]) -> Counts:
    """The attempts, calls and pages that ended in a part."""
    counts = Counts()
    for call in calls:
        for attempt in call.attempts:
            if not part.started <= attempt.ended < part.ended:
                continue
            counts.attempts += 1
            if attempt.failure:
                where = place(attempt, part, served_by)
                counts.attempts_failed[where] += 1
                counts.kinds[f"attempt, {call.kind}, {where}: {attempt.failure}"] += 1
        if not part.started <= call.ended < part.ended:
            continue
        counts.calls += 1
        if call.failure:
            where = place(call.attempts[-1], part, served_by) if call.attempts else "elsewhere"
            counts.calls_failed[where] += 1
            counts.kinds[f"call, {call.kind}, {where}: {call.failure}"] += 1
        elif call.is_whole and call.kind not in STREAMS:
            counts.seconds.append(call.ended - call.started)
    for page in pages:
        if part.started <= page.ended < part.ended:
            counts.pages += 1
            if page.failure:
                counts.pages_failed[f"page {page.path}: {page.failure}"] += 1
    return counts


def table(parts: Sequence[tuple[Part, Counts]]) -> str:
    """A row for each part, and the sum."""
    lines = [HEAD]
    for part, counts in parts:
        lines.append(_row(part.name, part.ended - part.started, counts))
    total = Counts()
    for _, counts in parts:
        total.calls += counts.calls
        total.attempts += counts.attempts
        total.attempts_failed += counts.attempts_failed
        total.calls_failed += counts.calls_failed
        total.seconds += counts.seconds
        total.pages += counts.pages
        total.pages_failed += counts.pages_failed
    lines.append(_row("all", sum(part.ended - part.started for part, _ in parts), total))
    return "\n".join(lines)


def _row(name: str, seconds: float, counts: Counts) -> str:
    others = counts.calls_failed["later"] + counts.calls_failed["elsewhere"]
    cells = [
        name,
        f"{seconds:.0f}",
        counts.calls,
        counts.attempts,
        counts.attempts_failed["in flight"],
        counts.attempts_failed["later"],
        counts.attempts_failed["elsewhere"],
        counts.calls_failed["in flight"],
        others,
        f"{percentile(counts.seconds, 0.5) * 1000:.0f}",
        f"{percentile(counts.seconds, 0.99) * 1000:.0f}",
        counts.pages,
        counts.pages_failed.total(),
    ]
    return "| " + " | ".join(str(cell) for cell in cells) + " |"


def failures(parts: Sequence[tuple[Part, Counts]]) -> str:
    """Every kind of failure of each part, as a list."""
    lines = []
    for part, counts in parts:
        found = counts.kinds + counts.pages_failed
        kinds = "; ".join(f"{number} × {kind}" for kind, number in sorted(found.items()))
        said = ". ".join(filter(None, [part.note, kinds]))
        if said:
            lines.append(f"- {part.name}: {said}")
    return "\n".join(lines)


def most_in_a_minute(times: Iterable[float], *, rate: float, burst: int) -> float:
    """The most successes of a key beyond `burst` and `rate` a second, over every interval; at most 0 is exact."""
    ordered = sorted(times)
    worst, most = -float(burst), float("-inf")
    # The excess of the interval from i to j is (j - rate * t_j) - (i - rate * t_i) + 1 - burst.
    for number, at in enumerate(ordered):
        level = number - rate * at
        most = max(most, -level)
        worst = max(worst, level + most + 1 - burst)
    return worst
