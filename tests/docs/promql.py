"""Finds the metrics and labels in a PromQL expression, and refuses one that is not well formed."""

from __future__ import annotations

import re
from collections.abc import Iterator

from msgspec import Struct

UP = "up"  # written by Prometheus for each target of a job
FUNCTIONS = frozenset(
    {"rate", "increase", "sum", "max", "min", "avg", "count", "absent", "histogram_quantile", "time", "vector"}
)
WORDS = frozenset({"by", "without", "on", "ignoring", "group_left", "group_right", "or", "and", "unless", "bool"})
TOKEN = re.compile(
    r'\s+|(?P<string>"[^"]*")|(?P<range>\[\d+[smhd]\])|(?P<number>\d+(?:\.\d+)?)|(?P<name>[a-zA-Z_:][\w:]*)'
    r"|(?P<sign>=~|!~|!=|==|>=|<=|[-+*/%^(){},=<>])"
)
PAIRS = {")": "(", "}": "{"}


class Selector(Struct):
    """A metric in an expression, with the labels of its matchers."""

    metric: str
    labels: set[str] = set()
    has_range: bool = False


class Expression(Struct):
    """The selectors of an expression, and the labels by which it groups."""

    selectors: list[Selector] = []
    groups: set[str] = set()


def tokens(text: str) -> Iterator[tuple[str, str]]:
    """Kind and text of each token; AssertionError for anything else."""
    at = 0
    while at < len(text):
        match = TOKEN.match(text, at)
        assert match is not None, f"not PromQL at {text[at:]!r}"
        at = match.end()
        if match.lastgroup is not None:
            yield match.lastgroup, match[0]


def parse(text: str) -> Expression:
    """The expression; AssertionError if it is not well formed."""
    found, open_, listed = list(tokens(text)), list[str](), list[str]()
    expression = Expression()
    for at, (kind, token) in enumerate(found):
        after = found[at + 1][1] if at + 1 < len(found) else ""
        if kind == "sign" and token in "({":
            listed.append(found[at - 1][1] if at else "")
            open_.append(token)
        elif token in PAIRS:
            assert open_, f"{token} without its beginning"
            assert open_.pop() == PAIRS[token]
            listed.pop()
        elif kind == "range":
            expression.selectors[-1].has_range = True
        elif kind == "name" and open_ and open_[-1] == "{":
            if after in ("=", "!=", "=~", "!~"):
                expression.selectors[-1].labels.add(token)
        elif kind == "name" and listed and listed[-1] in WORDS:
            expression.groups.add(token)
        elif kind == "name" and (token.startswith("gateway_") or token == UP):
            expression.selectors.append(Selector(token))
        elif kind == "name":
            assert token in FUNCTIONS | WORDS, f"unknown name {token}"
    assert not open_, f"{open_} without its end"
    return expression
