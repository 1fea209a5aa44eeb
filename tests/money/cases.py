"""The cases of the money property: a product of dimensions, run in rounds of calls that share one account.

`plan(cases, seed)` yields the rounds. Each permutation of the cells is used up before the next one begins, so that no
cell is left out once there are as many cases as cells. `Round.of(seed, number, cells)` depends on nothing else, so one
round can be repeated.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from fractions import Fraction
from itertools import product
from typing import NamedTuple

from msgspec import Struct

from gateway.amounts import NANO

DIALECTS = ("openai", "anthropic", "gemini", "bedrock", "cohere", "responses", "completions")
BEHAVIOURS = (
    "honest",
    "hidden reasoning",
    "early counts",
    "above its limit",
    "no counts",
    "output count too high",
    "input count too high",
    "output count too low",
    "impossible counts",
    "refuses",
    "refuses once",
    "counts, then cut",
    "cut",
    "silent",
    "silent after content",
    "unreachable",
)
#: never; when the request was sent; after the first content; in the middle of the content; after the end of it.
MOMENTS = ("never", "sent", "first", "middle", "finish")
BUDGETS = ("none", "ample", "tight", "small")  # of the key; a small one does not pay for most calls
CELLS = len(DIALECTS) * len(BEHAVIOURS) * len(MOMENTS) * len(BUDGETS)

#: The models of each dialect, by what differs between their settings.
VARIANTS = ("plain", "drain", "void", "clamp")
HIDDEN = "hidden"  # the setting `reasoning = true`
TWO = "two"  # two targets, and one retry
AWAY = "away"  # no server listens

SIZES = (1, 6, 10, 14)  # calls in a round
BALANCES = tuple(NANO * thousandth // 1000 for thousandth in (10_000, 10_000, 800, 400, 150, 60, 25, 10))
FLOORS = (0, 0, 0, -NANO // 100, NANO // 200)
CAPS = (None, None, None, NANO, NANO // 20, NANO // 200)  # of the month
SESSION_BUDGETS = (None, None, NANO, NANO // 20, NANO // 200)  # of each session in a day
BUDGET = {"none": None, "ample": 100 * NANO, "tight": NANO // 40, "small": NANO // 400}
#: What the account pays: the list price, that of its group, or prices of its own for every model.
PRICINGS = ("list", "list", "list", "group 0.5", "group 1.37", "factor 0.83", "amounts")
BATCH_FACTOR = Fraction(1, 2)  # of every model
LIMITS = (None, None, 8, 30, 64, 300, 1500)


class Cell(NamedTuple):
    """One element of the product."""

    dialect: str
    behaviour: str
    moment: str
    budget: str


class Case(Struct, frozen=True):
    """One call: its cell, and what is drawn for it."""

    cell: Cell
    name: str  # unique in a run; the prompt has it
    stream: bool
    variant: str
    limit: int | None  # of the caller
    words: int  # of the answer; each is one token
    hidden: int  # tokens that are counted and not sent
    prompt_words: int
    cached: int  # tokens of the prompt, as an honest upstream counts them
    draw: int  # for a choice within a behaviour

    @property
    def model(self) -> str:
        """The public model."""
        return f"{self.cell.dialect}-{self.variant}"

    @property
    def prompt_tokens(self) -> int:
        """The true count of the prompt."""
        return self.prompt_words + 3

    @property
    def session(self) -> str:
        """The id of its session; empty for a call without one. Completions have no field for it."""
        if self.cell.dialect == "completions":
            return ""
        return ("", "agent-0", "agent-1", "agent-1")[self.draw // 2 % 4]

    def document(self) -> dict[str, object]:
        """The caller's request."""
        text = " ".join([self.name, *["prompt"] * (self.prompt_words - 1)])
        body: dict[str, object] = {"model": self.model, "messages": [{"role": "user", "content": text}]}
        if self.stream:
            body["stream"] = True
        if self.session:
            body["prompt_cache_key"] = self.session
        if self.limit is not None:
            body["max_completion_tokens" if self.draw % 2 else "max_tokens"] = self.limit
        return body


class Round(Struct, frozen=True):
    """Calls that are made at once, on one account, with one key for each kind of budget."""

    number: int
    balance: int  # nano-units
    floor: int
    cap: int | None
    cases: list[Case]
    pricing: str = "list"
    session_budget: int | None = None
    in_batch: bool = False  # the calls are lines of batches

    @classmethod
    def of(cls, seed: int, number: int, cells: list[Cell]) -> Round:
        """The round of this number."""
        dice = random.Random(f"{seed}:{number}")
        floor = dice.choice(FLOORS)
        cases = [_case(cell, f"case-{number}-{at}-", dice) for at, cell in enumerate(cells)]
        cap = random.Random(f"{seed}:{number} cap").choice(CAPS)
        pricing = random.Random(f"{seed}:{number} pricing").choice(PRICINGS)
        budget = random.Random(f"{seed}:{number} sessions").choice(SESSION_BUDGETS)
        return cls(number, max(0, dice.choice(BALANCES) + floor), floor, cap, cases, pricing, budget)

    @property
    def group(self) -> str:
        """The group of the account."""
        kind, _, factor = self.pricing.partition(" ")
        return f"times-{factor}" if kind == "group" else "default"

    @property
    def factor(self) -> Fraction:
        """The factor of the account's prices, and that of batches."""
        return Fraction(self.pricing.partition(" ")[2] or "1") * (BATCH_FACTOR if self.in_batch else 1)

    @property
    def own_factor(self) -> Fraction:
        """The factor that the account itself has."""
        return Fraction(self.pricing.partition(" ")[2] or "1")


def plan(cases: int, seed: int) -> Iterator[Round]:
    """Rounds with so many cases in all."""
    sizes, cells = random.Random(f"{seed} sizes"), _cells(seed)
    number = 0
    while cases > 0:
        size = min(cases, sizes.choice(SIZES))
        yield Round.of(seed, number, [next(cells) for _ in range(size)])
        number, cases = number + 1, cases - size


def _cells(seed: int) -> Iterator[Cell]:
    dice = random.Random(f"{seed} cells")
    cells = [Cell(*cell) for cell in product(DIALECTS, BEHAVIOURS, MOMENTS, BUDGETS)]
    while True:
        dice.shuffle(cells)
        yield from cells


def _case(cell: Cell, name: str, dice: random.Random) -> Case:
    draw = dice.randrange(1 << 16)
    variant = dice.choice(VARIANTS)
    if cell.behaviour == "hidden reasoning" or dice.random() < 0.1:
        variant = HIDDEN
    if cell.behaviour == "refuses once":
        variant = TWO
    if cell.behaviour == "unreachable":
        variant = AWAY
    prompt_words = dice.randint(1, 40)
    honest = cell.behaviour in ("honest", "hidden reasoning", "early counts", "counts, then cut")
    return Case(
        cell,
        name,
        stream=dice.random() < 0.7,
        variant=variant,
        limit=dice.choice(LIMITS),
        words=dice.choice((3, 12, 40, 250)),
        hidden=dice.choice((5, 200, 1000)) if cell.behaviour == "hidden reasoning" else 0,
        prompt_words=prompt_words,
        cached=dice.randint(0, prompt_words) if honest else 0,
        draw=draw,
    )
