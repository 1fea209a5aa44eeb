"""docs/dialects.md: what each client can use on each upstream; `python -m tests.dialects.matrix` writes it again.

`test_matrix.py` runs every cell, whole and streamed. A cell that is no "yes" is in `EXCEPTIONS`, and its test expects
just that.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from gateway.testing.standards.deviations import DEVIATIONS

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


STANDARDS = """## Standards

The tests read each answer of status 200 that they get at an endpoint below with the classes of its standard, also each
event of a stream. A member that is missing, of another type or unknown there fails the test.

| endpoint | standard | classes |
| --- | --- | --- |
| `/v1/responses` | Open Responses | the package `openresponses-types` |
| `/v1/chat/completions`, `/v1/embeddings` | OpenAI's API | the package `openai` |
| `/v1/messages` | Anthropic's API | the package `anthropic` |
| `/v1beta/models/…:generateContent` and its stream | Google's Gemini API | the package `google-genai` |

Members whose name begins with `x_` are the gateway's or an upstream's. Open Responses has no class for OpenAI's custom
and hosted tools and for their items; they are not read. It says that the `schema` of a text format is null; the gateway
repeats what was sent. These are all other deviations:

"""


def expected(client: str, api: str, feature: str) -> str:
    """The text of a cell."""
    return EXCEPTIONS.get((client, api, feature), "yes")


def page() -> str:
    """The whole page."""
    return "\n".join((HEAD, *_tables(), STANDARDS + _deviations()))


def _deviations() -> str:
    lines = [["endpoint", "has", "because"], ["---"] * 3]
    lines += [[TITLES[one.dialect], one.members, one.reason] for one in DEVIATIONS]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _tables() -> Iterator[str]:
    for client in CLIENTS:
        lines = [["feature", *(f"upstream with {TITLES[api]}" for api in UPSTREAMS)], ["---"] * (len(UPSTREAMS) + 1)]
        for feature, text in FEATURES.items():
            lines.append([text, *(expected(client.name, api, feature) for api in UPSTREAMS)])
        table = "".join(f"| {' | '.join(line)} |\n" for line in lines)
        yield f"## Clients of {TITLES[client.name]}\n\n{table}"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
