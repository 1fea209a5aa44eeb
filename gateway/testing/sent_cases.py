"""What of a request must reach the upstream in any dialect: the model, the output limit, messages, tools, images.

A case makes a call with words and numbers that are nowhere else, and looks for them in the paths, headers and bodies of
all requests that the call sent. So a dialect may write them wherever it likes. A field that the provider does not
declare is not looked for. Sharp edge: whether the vendor would understand the request is not checked.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any
from urllib.parse import unquote

from gateway.errors import GatewayError
from gateway.schemas.chat_request import ChatRequest
from gateway.testing.openai_dialect import PIXEL
from gateway.testing.reply import Seen
from gateway.testing.subject import NotConcerned, Subject

LIMIT = 3217  # tokens; a number that is in no request by chance
EARLIER = (
    {"role": "system", "content": "Mind the quillwort."},
    {"role": "user", "content": "Where is the sedgewren?"},
    {"role": "assistant", "content": "In the bulrush."},
    {"role": "user", "content": "Say something in five words."},
)
WORDS = {"system": "quillwort", "user": "sedgewren", "assistant": "bulrush"}  # of the messages before the last one
TOOL = {
    "type": "function",
    "function": {
        "name": "find_heron",
        "description": "Where a heron is.",
        "parameters": {"type": "object", "properties": {"wingspan": {"type": "number"}}, "required": ["wingspan"]},
    },
}
IMAGE = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PIXEL}"}}
Ask = Callable[..., ChatRequest]
ChatCall = Callable[[Subject, ChatRequest], Awaitable[object]]


class SentRequests:
    """The requests of one call, as the upstream saw them."""

    def __init__(self, requests: Sequence[Seen]) -> None:
        self._bodies = [seen.body for seen in requests]
        heads = [f"{unquote(seen.path)} {' '.join(seen.headers.values())}" for seen in requests]
        self._text = "\n".join([*heads, *(_unescaped(body) for body in self._bodies)])

    def says(self, text: str) -> bool:
        """Whether a request has this text."""
        return text in self._text

    def counts(self, number: int) -> bool:
        """Whether a request has this number."""
        return re.search(rf"(?<![\w.]){number}(?![\w.])", self._text) is not None

    def carries(self, content: bytes) -> bool:
        """Whether a request has these bytes, as they are or in base64."""
        texts = base64.b64encode(content).decode(), base64.urlsafe_b64encode(content).decode()
        return any(content in body for body in self._bodies) or any(text.rstrip("=") in self._text for text in texts)


async def sent_by(subject: Subject, call: Awaitable[object], what: str = "") -> SentRequests:
    """What `requests_of` gives, to search it."""
    return SentRequests(await requests_of(subject, call, what))


async def requests_of(subject: Subject, call: Awaitable[object], what: str = "") -> list[Seen]:
    """The requests that `call` sends; a call may fail if the upstream does not know how to answer `what`."""
    first = len(subject.fake.seen)
    try:
        await call
    except GatewayError as error:
        if not what:
            raise
        if error.status == 400 and len(subject.fake.seen) == first:
            raise NotConcerned(f"the provider refuses {what}: {error.message}") from None
    return subject.fake.seen[first:]


def sent_cases(ask: Ask, calls: Mapping[str, ChatCall]) -> tuple[Callable[[Subject], Awaitable[None]], ...]:
    """The cases of chat; `calls` are the ways to make a call, by their names."""

    async def output_limit_is_sent(subject: Subject) -> None:
        for spelling in ("max_tokens", "max_completion_tokens"):
            request = ask(fields={spelling: LIMIT})
            limit = subject.chat.output_limit(request, subject.target)
            if limit is None:
                raise NotConcerned("`output_limit` says that no limit is sent")
            for which, call in calls.items():
                sent = await sent_by(subject, call(subject, request))
                assert sent.counts(limit), (
                    f"{which} did not send the output limit, {limit}, for which money is held and which the caller "
                    f"sent as `{spelling}`: read `max_output`; `output_limit` returns None if the dialect has none"
                )

    async def earlier_messages_are_sent(subject: Subject) -> None:
        for which, call in calls.items():
            sent = await sent_by(subject, call(subject, ask(fields={"messages": EARLIER})))
            for role, word in WORDS.items():
                assert sent.says(word), f"{which} did not send the earlier message of the {role}"

    async def tools_are_sent(subject: Subject) -> None:
        _require("tools", subject)
        for which, call in calls.items():
            sent = await sent_by(subject, call(subject, ask(fields={"tools": [TOOL]})), "a tool")
            for word in ("find_heron", "wingspan"):
                assert sent.says(word), f"{which} did not send the tool, which `chat_fields` names: {word} is missing"

    async def images_are_sent(subject: Subject) -> None:
        _require("image_url", subject)
        content: list[Any] = [{"type": "text", "text": "What is this?"}, IMAGE]
        request = ask(fields={"messages": [{"role": "user", "content": content}]})
        for which, call in calls.items():
            sent = await sent_by(subject, call(subject, request), "an image")
            assert sent.carries(base64.b64decode(PIXEL)), f"{which} did not send the image, which `chat_fields` names"

    return output_limit_is_sent, earlier_messages_are_sent, tools_are_sent, images_are_sent


def _require(field: str, subject: Subject) -> None:
    fields = subject.chat.chat_fields
    if fields is not None and field not in fields:
        raise NotConcerned(f"`chat_fields` does not name {field}")


def _unescaped(body: bytes) -> str:
    """The text of a body; JSON may write a slash in two ways."""
    return body.decode("utf-8", "replace").replace("\\/", "/")
