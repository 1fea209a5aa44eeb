"""Walks all sequences of requests of an attacker, and says what one of them gives that the attacker did not have.

States in which the same objects have the same rights are one state, so each request is sent once in each of them, and
not once in each sequence that leads there. A request that a rule refuses whatever is stored is sent once. Every request
is a real one. Reading changes nothing, so it is tried at first and after one change.
"""

from __future__ import annotations

from typing import Any, Protocol

from msgspec import Struct

from tests.sequences.facts import SITE, Attacker, Facts, Held, gains
from tests.sequences.steps import Answer, Step
from tests.sequences.world import Snapshot, World, learned

#: Texts of the world, and the scopes and places of which one lets an attacker read them.
SECRETS = {
    "secret-note": (("read", "acme"),),
    "secret-token": (("read", SITE), ("config", SITE)),
    "secret-key_other": (("read", "other"), ("keys", "other")),
    "secret-key_olga": (("read", "acme"), ("keys", "acme")),
    "olga@example.com": (("read", "acme"), ("users", "acme")),
    "rob@example.com": (("read", SITE), ("users", SITE)),
}


class Sender(Protocol):
    """Sends steps as the attacker. `stops` are answers after which nothing else would be tried."""

    stops: frozenset[int]

    async def send(self, step: Step, path: str, body: Any) -> Answer: ...
    def is_hopeless(self, step: Step, answer: Answer) -> bool: ...


class State(Struct, frozen=True):
    """A state, the way to it, and what the attacker holds there."""

    snapshot: Snapshot
    facts: Facts
    held: Held
    way: tuple[str, ...]


class Walked(Struct):
    """The result: sequences that gained something, each with what; and how much was covered and sent."""

    gained: dict[str, list[str]]
    steps: int
    states: int = 1
    requests: int = 0
    sequences: int = 0


class Walk:
    """One attacker in a world."""

    def __init__(self, world: World, attacker: Attacker, sender: Sender, steps: list[Step]) -> None:
        self._world = world
        self._attacker = attacker
        self._sender = sender
        self._steps = steps
        self.walked = Walked({}, len(steps))

    async def run(self, length: int) -> Walked:
        """All sequences of at most `length` requests. AssertionError: a refused request changed something."""
        snapshot = await self._world.save()
        self._first = await self._world.facts(snapshot, Held())
        begin = State(snapshot, self._first, Held(), ())
        assert gains(self._attacker, self._first, self._first, Held()) == []
        seen, frontier = {begin.facts.digest(self._first, begin.held)}, [begin]
        for _ in range(length):
            following: list[State] = []
            for state in frontier:
                for reached in await self._from(state):
                    digest = reached.facts.digest(self._first, reached.held)
                    if digest not in seen:
                        seen.add(digest)
                        following.append(reached)
            frontier = following
        await self._world.restore(snapshot)
        self.walked.states = len(seen)
        self.walked.sequences = sum(self.walked.steps**n for n in range(1, length + 1))
        return self.walked

    async def _from(self, state: State) -> list[State]:
        """The states that one more request leads to."""
        await self._world.restore(state.snapshot)
        names = dict(self._world.ids)
        if made := [id_ for id_ in state.facts.users if id_ not in self._first.users]:
            names["new"] = made[-1]
        found = []
        for step in list(self._steps):
            filled = step.filled(names)
            if filled is None or (step.method == "GET" and len(state.way) > 1):
                continue
            self.walked.requests += 1
            answer = await self._sender.send(step, *filled)
            way = (*state.way, step.label)
            assert answer.status not in self._sender.stops, f"{way}: the walk was stopped with {answer.status}"
            self._check_text(way, answer)
            after = await self._world.save()
            if after.same(state.snapshot):
                if not state.way and self._sender.is_hopeless(step, answer):
                    self._steps.remove(step)
                continue
            assert answer.status < 400, f"{way} was refused with {answer.status} and changed something"
            reached = await self._reached(state, after, way, answer)
            if reached is not None:
                found.append(reached)
            await self._world.restore(state.snapshot)
        return found

    async def _reached(self, state: State, after: Snapshot, way: tuple[str, ...], answer: Answer) -> State | None:
        facts = await self._world.facts(after, state.held)
        held = learned(state.held, answer.text, after, facts.keys.keys() - state.facts.keys.keys())
        facts = await self._world.facts(after, held)
        if found := gains(self._attacker, self._first, facts, held):
            self._gained(way, found)
            return None
        if facts.is_over(self._attacker):
            return None
        return State(after, facts, held, way)

    def _check_text(self, way: tuple[str, ...], answer: Answer) -> None:
        for text, ways in SECRETS.items():
            if text in answer.text and not any(self._attacker.may(scope, where) for scope, where in ways):
                self._gained(way, [f"reads {text}"])

    def _gained(self, way: tuple[str, ...], what: list[str]) -> None:
        self.walked.gained[" → ".join(way)] = what
