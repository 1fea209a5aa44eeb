"""The outcomes as a table or as one JSON document."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from typing import Any

import msgspec

from gateway.testing.servers.run import Outcome

#: The package of each standard's classes.
PACKAGES: Mapping[str, str] = {
    "responses": "openresponses-types",
    "websocket": "openresponses-types",
    "chat": "openai",
    "messages": "anthropic",
    "gemini": "google-genai",
    "models": "openai",
    "embeddings": "openai",
}
WIDTH = max(len(api) for api in PACKAGES)
NAME = 28  # characters of a situation


def line(outcome: Outcome) -> str:
    """The lines of one situation: how it ended, and its faults."""
    word = "fails" if outcome.faults else "holds"
    first = f"{word}  {outcome.api:{WIDTH}}  {outcome.situation:{NAME}}  {outcome.seconds:6.2f} s"
    return "\n".join([first, *(f"       {fault}" for fault in outcome.faults)])


def summary(outcomes: Sequence[Outcome]) -> str:
    """The last lines: what holds, by API with the version of its classes, and altogether."""
    by_api = defaultdict(list)
    for one in outcomes:
        by_api[one.api].append(one)
    lines = [
        f"{api:{WIDTH}}  {held(found)} of {len(found)} hold  ({PACKAGES[api]} {version(PACKAGES[api])})"
        for api, found in by_api.items()
    ]
    answers, events = sum(one.answers for one in outcomes), sum(one.events for one in outcomes)
    lines.append(
        f"{held(outcomes)} of {len(outcomes)} situations hold; {answers} answers and {events} events were read"
    )
    return "\n".join(lines)


def held(outcomes: Sequence[Outcome]) -> int:
    """How many hold."""
    return sum(not one.faults for one in outcomes)


def document(base_url: str, model: str, outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """Everything, for programs."""
    packages = sorted({PACKAGES[one.api] for one in outcomes})
    return {
        "base_url": base_url,
        "model": model,
        "packages": {name: version(name) for name in packages},
        "held": held(outcomes),
        "situations": [{**msgspec.to_builtins(one), "holds": not one.faults} for one in outcomes],
    }
