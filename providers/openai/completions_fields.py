"""What servers take of a completion request, as data (docs/providers/openai.md, "Completions").

A field that asks for something and is not in the row of a server is refused, because most servers ignore what they do
not know. An operator may add one with `forward_params`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from gateway import AcceptedFields
from gateway.schemas.completions.native import PROMPTS, TOKENS, WITHOUT

from .server import SharedOptions

#: Fields that every server of the dialect takes.
CORE = frozenset({
    "model", "prompt", "max_tokens", "stream", "stream_options", "temperature", "top_p", "presence_penalty",
    "frequency_penalty", "seed", "stop",
})  # fmt: skip


def _row(*more: str, forms: frozenset[str] = frozenset()) -> AcceptedFields:
    return AcceptedFields(CORE.union(more), forms=forms)


ALL = _row(
    "suffix", "n", "best_of", "logprobs", "echo", "logit_bias", "user", forms=frozenset({PROMPTS, TOKENS, WITHOUT})
)
#: By preset; the server of one that is not here has no completions.
PRESETS: Mapping[str, AcceptedFields] = {
    "together": _row("n", "logprobs", "echo", "logit_bias"),
    "openrouter": _row("logprobs", "logit_bias", "user"),
    "vllm": _row("n", "logprobs", "echo", "logit_bias", "user", forms=frozenset({PROMPTS, TOKENS})),
    "llamacpp": _row("n", "logprobs", "logit_bias", forms=frozenset({PROMPTS, TOKENS})),
    "ollama": _row("suffix"),
}
#: Presets whose servers count one text of an answer with several; the gateway's estimate is better than that.
COUNT_ONE = frozenset({"llamacpp"})
#: OpenAI's own models with completions; its other ones have only chats.
_OFFICIAL = re.compile(r"(?:ft:)?(?:gpt-3\.5-turbo-instruct|davinci-002|babbage-002)(?:[-:].*)?", re.DOTALL)


def accepted_completions(options: SharedOptions, preset: str | None, own: frozenset[str]) -> AcceptedFields | None:
    """What a server takes, with its own fields; None if it gets no completions."""
    if not (preset in PRESETS if options.completions is None else options.completions):
        return None
    row = PRESETS.get(preset or "", ALL)
    return AcceptedFields(row.fields | own, forms=row.forms)


def is_completions_model(model: str) -> bool:
    """Whether this model of OpenAI's own API has completions."""
    return _OFFICIAL.fullmatch(model) is not None
