"""docs/dialects.md: what each client can use on each upstream; `python -m tests.dialects.matrix` writes it again.

`test_matrix.py` runs every cell, whole and streamed. A cell that is no "yes" is in `EXCEPTIONS`, and its test expects
just that.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from .clients import CLIENTS
from .conftest import UPSTREAMS

PAGE = Path(__file__).parents[2] / "docs" / "dialects.md"

NONE, NAMED, LOST = "no such field", "left out, named", "not returned"

FEATURES = {
    "text": "text, and the tokens of prompt, cache and answer",
    "tools": "a tool is offered, called and answered",
    "parallel": "two calls at once, in their order",
    "image": "an image in the question, byte for byte",
    "pdf": "a PDF in the question, byte for byte",
    "schema": "the answer follows a JSON schema",
    "stop": "a stop sequence",
    "end": "an answer that was cut by its limit, or refused",
    "reasoning": "reasoning is shown, and its signature returns with the next question",
}
TITLES = {
    "chat": "chat completions",
    "responses": "Responses",
    "messages": "Messages",
    "gemini": "Gemini",
    "bedrock": "Claude on Bedrock",
}
NAMES = tuple(client.name for client in CLIENTS)

#: By client, upstream and feature.
EXCEPTIONS: Mapping[tuple[str, str, str], str] = {
    **{("responses", api, "stop"): NONE for api in UPSTREAMS},
    **{(client, "chat", "reasoning"): LOST for client in NAMES},
    **{(client, "responses", "reasoning"): LOST for client in NAMES if client != "responses"},
}

HEAD = """# Dialects: clients over upstreams

This page is made from the tests by `python -m tests.dialects.matrix`. They send each feature in each dialect of clients
to an upstream of each dialect, whole and streamed.

- *no such field*: the client's API cannot ask for it.
- *left out, named*: the upstream's API has nothing like it. It is not sent, and `x-gateway-dropped-params` names it.
- *not returned*: the reasoning is shown to the client. An upstream of another vendor has no use for it later.

A request whose dialect the upstream has is forwarded as it was sent. An upstream with Responses also has chat
completions, which get the requests of all other clients. [One table](providers/matrix.md) has what each provider takes.
"""


def expected(client: str, api: str, feature: str) -> str:
    """The text of a cell."""
    return EXCEPTIONS.get((client, api, feature), "yes")


def page() -> str:
    """The whole page."""
    return "\n".join((HEAD, *_tables()))


def _tables() -> Iterator[str]:
    for client in CLIENTS:
        lines = [["feature", *(f"upstream with {TITLES[api]}" for api in UPSTREAMS)], ["---"] * (len(UPSTREAMS) + 1)]
        for feature, text in FEATURES.items():
            lines.append([text, *(expected(client.name, api, feature) for api in UPSTREAMS)])
        table = "".join(f"| {' | '.join(line)} |\n" for line in lines)
        yield f"## Clients of {TITLES[client.name]}\n\n{table}"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
