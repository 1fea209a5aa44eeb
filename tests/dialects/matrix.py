"""docs/dialects.md: what each client can use on each upstream; `python -m tests.dialects.matrix` writes it again.

`test_matrix.py` runs every cell, whole and streamed. A cell that is no "yes" is in `EXCEPTIONS`, and its test expects
just that.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from importlib.metadata import version
from pathlib import Path

from gateway.testing.servers.report import PACKAGES
from gateway.testing.servers.situations import SITUATIONS, USUAL
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
#: Endpoints of deviations.
DIALECTS = {**TITLES, "transcriptions": "transcriptions", "models": "models"}
NAMES = tuple(client.name for client in CLIENTS)

#: By client, upstream and feature.
EXCEPTIONS: Mapping[tuple[str, str, str], str] = {
    **{("responses", api, "stop"): NONE for api in UPSTREAMS},
    **{(client, "chat", "reasoning"): LOST for client in NAMES},
    **{(client, "responses", "reasoning"): LOST for client in NAMES if client != "responses"},
}

HEAD = """# Dialects: clients over upstreams

This page is made from the tests by `python -m tests.dialects.matrix`. The tests send each feature in each dialect of
clients to an upstream of each dialect, whole and streamed.

- *no such field*: the client's API cannot ask for it.
- *left out, named*: the upstream's API has nothing like it. It is not sent, and `x-gateway-dropped-params` names it.
- *not returned*: the reasoning is shown to the client. An upstream of another vendor has no use for it later.

A request whose dialect the upstream has is forwarded as it was sent. An upstream with Responses also has chat
completions, which get the requests of all other clients. [One table](providers/matrix.md) has what each provider takes.
"""


#: Figures of LiteLLM's proxy, by API; `python -m tests.dialects.litellm` counts them again.
LITELLM_VERSION, LITELLM_DATE = "1.110.2", "2026-11-30"
LITELLM = {"responses": 3, "websocket": 0, "chat": 6, "messages": 27, "gemini": 24, "models": 0}
#: Over these upstreams: chat completions, Messages and Gemini.
CHECKED_UPSTREAMS = 3
STANDARD_NAMES = {
    "responses": "Open Responses: `/v1/responses`, `/v1/responses/compact`",
    "websocket": "Open Responses over WebSocket",
    "chat": "OpenAI's API: `/v1/chat/completions`",
    "messages": "Anthropic's API: `/v1/messages`",
    "gemini": "Google's Gemini API: `/v1beta/models/…:generateContent` and its stream",
    "models": "OpenAI's API: `/v1/models`",
}

STANDARDS = """## Standards

On Python 3.11, where the packages below are installed, the tests read the answers that they get with their aiohttp
client: each one of status 200 at an endpoint below, each error from status 400 on, each event of a stream and each
message of a WebSocket. Answers that a test gets in another way, for example through a vendor's SDK, are not read. A
member that is missing, of another type or unknown there fails the test. The last line of a run says how many answers
and events were read: on 2026-11-30, those of `tests/api` and `tests/dialects` in a quick run were 5,525 answers, 3,368
errors and 16,466 events. *Completed* means that members of the vendor's document which its package leaves out, such as
`details` of an error, are written in classes over those of the package.

| endpoint | standard | classes |
| --- | --- | --- |
| `/v1/responses`, also over WebSocket, `/v1/responses/compact` | Open Responses | the package `openresponses-types` |
| `/v1/chat/completions`, `/v1/completions`, `/v1/embeddings` | OpenAI's API | the package `openai` |
| `/v1/models`, `/v1/models/…` | OpenAI's API | the same |
| `/v1/images/generations`, `/v1/audio/transcriptions`, `/v1/responses/input_tokens` | OpenAI's API | the same |
| `/v1/audio/translations` | OpenAI's API | the same, completed with `task` |
| events of `/v1/audio/speech` | OpenAI's API | written after its document: the package has none |
| `/v1/messages`, `/v1/messages/count_tokens` | Anthropic's API | the package `anthropic` |
| `/v1/models` and `/v1/models/…` with `anthropic-version` | Anthropic's API | the same |
| `/v1beta/models/…:generateContent` and its stream | Google's Gemini API | the package `google-genai` |
| `/v1beta/models`, `/v1beta/models/…`, `:countTokens` and the methods for vectors | the same | the same, completed |
| errors, whole and in streams | that of the endpoint | the same, completed |

The situations of the public compliance suite of Open Responses are text, streams, a system prompt, tools, an image,
turns, settings, compaction and WebSocket. They and the same ones of the other APIs run over an upstream with chat
completions, one with Messages and one with Gemini. So many hold:

"""

AFTER_FIGURES = f"""
LiteLLM's figures are those of version {LITELLM_VERSION}, counted on {LITELLM_DATE} over the same upstreams.

### Check any server

```sh
pip install 'model-gateway[conformance]'
OPENAI_API_KEY=… python -m gateway.testing conformance --base-url https://gateway.example.com/v1 --model house-large
```

The command runs these situations against any server, prints a line for each with what is missing, wrong or foreign, and
then how many hold by API. `--api NAME` checks only `responses`, `websocket`, `chat`, `messages`, `gemini`, `models` or
`embeddings`, and may be repeated; `embeddings` runs only if it is named, with a model that has vectors. `--key` is
`env:NAME`, `file:PATH` or the key itself, which other users of the machine can read in the command line. `--json`
prints one JSON document. The exit status is 0 if all hold, 1 if some do not, and 2 if nothing was checked, for example
because the server cannot be reached or refuses the key.

Each situation is one to three short requests, one after the other; together they are about fifty. An answer has at most
`--limit` output tokens (1,024), and is given up after `--timeout` seconds (60). The model must take images and tools,
and call the tool that it is asked to call. Messages requests send the key as `x-api-key`, Gemini's as
`x-goog-api-key` to `/v1beta` beside `/v1`.

### Deviations

Members whose name begins with `x_` are the gateway's or an upstream's. Open Responses has no class for OpenAI's custom
and hosted tools and for their items; they are not read. It says that the `schema` of a text format is null; the gateway
repeats what was sent. These are all other deviations, which no server needs to have, and each may have:

"""


def expected(client: str, api: str, feature: str) -> str:
    """The text of a cell."""
    return EXCEPTIONS.get((client, api, feature), "yes")


def page() -> str:
    """The whole page."""
    return "\n".join((HEAD, *_tables(), STANDARDS + _figures() + AFTER_FIGURES + _deviations()))


def _figures() -> str:
    counts = Counter(one.api for one in SITUATIONS if one.api in USUAL)
    lines = [["standard", "classes", "situations", "held here", "held by LiteLLM"], ["---"] * 5]
    for api, count in counts.items():
        package = PACKAGES[api]
        total = count * CHECKED_UPSTREAMS
        lines.append(
            [STANDARD_NAMES[api], f"`{package}` {version(package)}", str(total), str(total), str(LITELLM[api])]
        )
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _deviations() -> str:
    lines = [["endpoint", "has", "because"], ["---"] * 3]
    lines += [[DIALECTS[one.dialects[0]], one.members, one.reason] for one in DEVIATIONS]
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
