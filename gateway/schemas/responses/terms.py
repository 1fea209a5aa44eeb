"""Errors about a translated request, in the field names of the Responses API.

A Responses request is checked, quoted and served as a chat request. An error of that one names chat's fields, which the
caller did not send.
"""

from __future__ import annotations

import re
from typing import TypeVar

from gateway.errors import GatewayError

E = TypeVar("E", bound=GatewayError)

#: Chat's fields and what the caller calls them.
NAMES = {
    "messages": "input",
    "max_tokens": "max_output_tokens",
    "max_completion_tokens": "max_output_tokens",
    "response_format": "text.format",
    "response_format.json_schema": "text.format",
    "reasoning_effort": "reasoning.effort",
    "verbosity": "text.verbosity",
    "logprobs": "include",
    "image_url": "input_image",
    "file": "input_file",
}
_NAMED = re.compile(
    rf"(?<=')({'|'.join(sorted(map(re.escape, NAMES), key=len, reverse=True))})(?=['.\[])|\bmax_tokens\b"
)
_MESSAGE_PATH = re.compile(r"^messages\b.*")  # positions of messages are not those of items


def in_responses_terms(error: E) -> E:
    """The same error, changed: its param and the names in its message."""
    param = error.param
    if param is not None:
        error.param = "input" if _MESSAGE_PATH.match(param) else _renamed(param)
    message = error.message.replace("The messages and", "The input and")
    error.message = _NAMED.sub(lambda found: NAMES.get(found[0], found[0]), message)
    return error


def _renamed(param: str) -> str:
    for name in sorted(NAMES, key=len, reverse=True):
        if param == name or param.startswith((f"{name}.", f"{name}[")):
            return NAMES[name] + param[len(name) :]
    return param
