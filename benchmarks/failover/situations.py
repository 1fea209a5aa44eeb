"""The sixteen situations: what the provider does, and the rules by which a call is judged.

A rule returns what it saw that breaks it, or "". A broken rule that advises makes a whole answer `partial`; any other
makes it `fail`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec import Struct

from benchmarks.failover.heard import Heard
from benchmarks.failover.provider import REFUSAL

PASS, PARTIAL, SAFE, FAIL = "pass", "partial", "safe", "fail"
VERDICTS = (PASS, PARTIAL, SAFE, FAIL)


class Seen(Struct, kw_only=True):
    """What both sides saw of one situation."""

    heard: list[Heard]
    attempts: list[float]  # seconds of the attempts at the failing model after the start of the first call
    fallback: str  # the name of the fallback model
    alive: bool | None = None  # whether a call to a healthy model succeeded afterwards; None: not asked
    recovers_at: float = 0.0  # seconds after which the model answers again

    @property
    def last(self) -> Heard:
        """The last call, which is the only one of most situations."""
        return self.heard[-1]


class Rule(Struct, frozen=True):
    """One rule of good conduct."""

    broken: Callable[[Seen], str]
    advises: bool = False


class Situation(Struct, frozen=True, kw_only=True):
    """One way to fail."""

    name: str  # and the name of the model
    title: str
    rules: Sequence[Rule] = ()
    fallback: str = "healthy"
    within: float = 45.0  # seconds after which a call hangs
    right_end: str = "answer"  # or "error"
    calls: int = 1
    every: float = 4.0  # seconds between two calls
    asks_alive: bool = False


def verdict_of(situation: Situation, seen: Seen) -> tuple[str, str]:
    """The verdict and its reason."""
    if any(heard.hung for heard in seen.heard):
        return FAIL, "a call had no end in time"
    if any(heard.misleading for heard in seen.heard):
        return FAIL, "an answer looks whole and is not"
    broken = [(rule, text) for rule in situation.rules if (text := rule.broken(seen))]
    if found := [text for rule, text in broken if not rule.advises]:
        return FAIL, found[0]
    if situation.right_end == "error":
        return (PARTIAL, "the fallback answered") if seen.last.whole else (PASS, "")
    if situation.calls == 1 and not seen.last.whole:
        return SAFE, seen.last.error
    return (PARTIAL, broken[0][1]) if broken else (PASS, "")


# Rules ---------------------------------------------------------------------------------------------------------------


def _at_most(count: int, *, within: float | None = None) -> Callable[[Seen], str]:
    def broken(seen: Seen) -> str:
        first = seen.attempts[0] if seen.attempts else 0.0
        found = [at for at in seen.attempts if within is None or at <= first + within]
        return f"{len(found)} attempts" if len(found) > count else ""

    return broken


def _tried_again(seen: Seen) -> str:
    return "" if len(seen.attempts) > 1 else "not tried again"


def _waited(seconds: float) -> Callable[[Seen], str]:
    def broken(seen: Seen) -> str:
        if len(seen.attempts) < 2:
            return "not tried again"
        gap = seen.attempts[1] - seen.attempts[0]
        return f"tried again after {gap:.1f} s" if gap < seconds else ""

    return broken


def _took_at_most(seconds: float) -> Callable[[Seen], str]:
    return lambda seen: f"{seen.last.seconds:.1f} s" if seen.last.seconds > seconds else ""


def _alive(seen: Seen) -> str:
    return "a healthy call failed afterwards" if seen.alive is False else ""


def _whole(seen: Seen) -> str:
    return "" if seen.last.whole else "the answer is not whole"


def _with_usage(seen: Seen) -> str:
    return "" if seen.last.usage else "no usage"


def _fallback_named(seen: Seen) -> str:
    return "" if seen.last.model == seen.fallback else f"the answer names {seen.last.model}"


def _refusal_hidden(seen: Seen) -> str:
    return "the caller got the fallback's refusal" if REFUSAL[:40] in seen.last.error else ""


def _served(seen: Seen) -> str:
    refused = sum(not heard.whole for heard in seen.heard)
    return f"{refused} of {len(seen.heard)} calls without an answer" if refused else ""


def _back_within(seconds: float) -> Callable[[Seen], str]:
    def broken(seen: Seen) -> str:
        back = next((at for at in seen.attempts if at >= seen.recovers_at), None)
        return "" if back is not None and back <= seen.recovers_at + seconds else "not back in time"

    return broken


SITUATIONS = (
    Situation(
        name="S01",
        title="429 once, Retry-After: 2",
        rules=(Rule(_tried_again, True), Rule(_waited(1.8), True), Rule(_at_most(2, within=1.5))),
        within=20,
    ),
    Situation(name="S02", title="429 always", rules=(Rule(_at_most(4, within=3)), Rule(_at_most(6))), within=40),
    Situation(name="S03", title="500 once", rules=(Rule(_tried_again, True),), within=20),
    Situation(name="S04", title="503 always", rules=(Rule(_at_most(6)),), within=40),
    Situation(name="S05", title="reset before the headers, once", within=20),
    Situation(
        name="S06", title="silent", rules=(Rule(_took_at_most(100)), Rule(_at_most(1), True)), within=130
    ),
    Situation(name="S07", title="first word after 20 s", rules=(Rule(_took_at_most(15), True),), within=60),
    Situation(name="S08", title="cut after 40 words", within=40),
    Situation(
        name="S09",
        title="silent after 20 words",
        rules=(Rule(_took_at_most(45)), Rule(_alive)),
        within=70,
        asks_alive=True,
    ),
    Situation(
        name="S10", title="a frame is no JSON", rules=(Rule(_alive), Rule(_whole, True)), within=30, asks_alive=True
    ),
    Situation(name="S11", title="no [DONE]", rules=(Rule(_took_at_most(8)), Rule(_with_usage, True)), within=30),
    Situation(name="S12", title="context length exceeded", rules=(Rule(_at_most(1)),), within=20),
    Situation(
        name="S13", title="content policy", rules=(Rule(_at_most(1)),), within=20, right_end="error"
    ),
    Situation(
        name="S14",
        title="cut; fallback refuses a start",
        rules=(Rule(_refusal_hidden),),
        fallback="strict",
        within=40,
    ),
    Situation(
        name="S15", title="503 for 60 s, 20 calls", rules=(Rule(_served), Rule(_back_within(30))), within=30, calls=20
    ),
    Situation(
        name="S16",
        title="503 always: accounting",
        rules=(Rule(_fallback_named), Rule(_with_usage, True), Rule(_at_most(6))),
        within=40,
    ),
)  # fmt: skip
