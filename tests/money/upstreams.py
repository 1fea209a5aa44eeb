"""The upstream of the money property: what it does with each case, and the truth about what it did.

`Upstreams.receive(body)` makes the answer to one request. A transport in this process and a `FakeUpstream` send it.
"""

from __future__ import annotations

import re
from typing import Any, Literal

import msgspec
from msgspec import Struct

from tests.money.cases import Case
from tests.money.dialects import WORD, Answer, Counts, Piece, document, pieces, sent_limit, stream_type

NAME = re.compile(rb"case-\d+-\d+-")
#: What an upstream may say in place of a number of tokens.
IMPOSSIBLE: tuple[Any, ...] = (-5, "many", 10**18, 2_000_000_000)
REFUSALS = (400, 429, 500, 503)
TOO_MANY_OUT, TOO_MANY_IN = 999_000, 200_000
HONEST = ("honest", "hidden reasoning", "early counts", "refuses once")  # their counts are true, and within their limit


class Script(Struct):
    """One answer: status, media type, what is written, and how it ends."""

    status: int
    media_type: str
    pieces: list[Piece]
    end: Literal["whole", "cut", "silence"] = "whole"
    made: int = 0  # true tokens of the whole answer


class Truth(Struct):
    """What the upstream knows about one call."""

    requests: int = 0
    refused: bool = False  # the last one, and the gateway has read it
    limit: int | None = None  # of output, as it was asked for
    made: int = 0  # tokens of the answer
    words: int = 0  # that were written


class Upstreams:
    """Every dialect, and the truths by the name of the case."""

    def __init__(self) -> None:
        self.cases: dict[str, Case] = {}
        self.truths: dict[str, Truth] = {}

    def add(self, case: Case) -> None:
        """Expect the requests of a case."""
        self.cases[case.name], self.truths[case.name] = case, Truth()

    def forget(self, case: Case) -> Truth:
        """The case is over."""
        del self.cases[case.name]
        return self.truths.pop(case.name)

    def receive(self, body: bytes) -> tuple[Case, Truth, Script]:
        """The answer to the request of a case."""
        found = NAME.search(body)
        assert found is not None, body
        name = found.group().decode()
        case, truth = self.cases[name], self.truths[name]
        truth.requests += 1
        truth.limit = sent_limit(case.cell.dialect, msgspec.json.decode(body))
        script = _script(case, truth)
        truth.refused, truth.made = False, script.made
        return case, truth, script


def _script(case: Case, truth: Truth) -> Script:
    behaviour = case.cell.behaviour
    if behaviour == "refuses" or (behaviour == "refuses once" and truth.requests == 1):
        # A refused request may be sent again with a lower limit, and gets the same reply.
        status = REFUSALS[case.draw % len(REFUSALS)] if behaviour == "refuses" else 503
        return Script(status, "application/json", [Piece("end", b'{"error":{"message":"No.","type":"error"}}')])
    if behaviour == "silent":
        return Script(200, stream_type(case.cell.dialect), [], "silence")
    answer, made = _answer(case, truth.limit)
    dialect = case.cell.dialect
    if not case.stream:
        end: Literal["whole", "cut", "silence"] = "whole"
        whole = document(dialect, answer)
        if behaviour in ("cut", "counts, then cut", "silent after content"):
            whole, end = whole[: len(whole) // 2], "silence" if behaviour.startswith("silent") else "cut"
        return Script(200, "application/json", [Piece("content", whole, answer.words)], end, made)
    parts = pieces(dialect, answer)
    if behaviour == "counts, then cut":
        return _cut(case, [part for part in parts if part.stage == "head"], "cut", made)
    if behaviour in ("cut", "silent after content"):
        content = [part for part in parts if part.stage in ("head", "content")]
        return _cut(case, content[: max(1, len(content) * 2 // 3)], "cut" if behaviour == "cut" else "silence", made)
    return _cut(case, parts, "whole", made)


def _cut(case: Case, parts: list[Piece], end: Literal["whole", "cut", "silence"], made: int) -> Script:
    return Script(200, stream_type(case.cell.dialect), parts, end, made)


def _answer(case: Case, limit: int | None) -> tuple[Answer, int]:
    """The answer and its true tokens."""
    behaviour, hidden = case.cell.behaviour, case.hidden
    words = 250 if behaviour == "output count too low" else case.words
    if behaviour == "above its limit":
        words = min(3 * (limit or 100) + 100, 600)
    elif limit is not None:
        hidden = min(hidden, limit - 1)
        words = min(words, limit - hidden)
    true = Counts(case.prompt_tokens, words + hidden, case.cached, hidden)
    early = None
    if behaviour in ("early counts", "counts, then cut"):
        early = true._replace(completion=0, reasoning=0)
    return Answer(words, _told(case, true), early), words + hidden


def _told(case: Case, true: Counts) -> Counts | None:
    match case.cell.behaviour:
        case "no counts":
            return None
        case "output count too high":
            return true._replace(completion=TOO_MANY_OUT)
        case "input count too high":
            return true._replace(prompt=TOO_MANY_IN, cached=0)
        case "output count too low":
            return true._replace(completion=1)
        case "impossible counts":
            wrong = IMPOSSIBLE[case.draw % len(IMPOSSIBLE)]
            return Counts(wrong, wrong)
    return true


def quarter_tokens(words: int) -> int:
    """Our count of so many words, in quarters of a token: one for each ASCII character."""
    return words * len(WORD)
