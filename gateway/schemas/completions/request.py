"""Reads a completion request, OpenAI's older dialect without messages (docs/fields.md, "Completions").

`decode_completions(body)` is the only way in; it raises nothing but `BadRequest` errors. It returns a chat request with
the prompt as one user message, which any provider of chat can serve and by which the call is charged; its `native`
keeps what was sent, for upstreams that have the dialect. Null equals absence, except for `prompt`: a null there is the
model's own end-of-text token.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from msgspec import Meta, Raw

from gateway.errors import MissingParameter, OutOfRange
from gateway.schemas.chat_options import StreamOptions
from gateway.schemas.chat_request import ChatRequest, Penalty, Stop, TokenId, decode_chat_request
from gateway.schemas.completions.native import BEYOND_CHAT, PROMPTS, TOKENS, WITHOUT, CompletionsNative
from gateway.schemas.duplicate_keys import Examined, own_request, unexplained_names
from gateway.schemas.embeddings import Token
from gateway.schemas.embeddings import Tokens as TokenNumbers
from gateway.schemas.empty_fields import drop_nulls
from gateway.schemas.forbidden import header_name
from gateway.schemas.native_request import COMPLETIONS
from gateway.schemas.request_fields import NULL, OWN, Core, Hint, RequestFields, Sampling, Semantic
from gateway.schemas.schema_errors import check_one_kind, invalid
from gateway.schemas.validation import BodyDecoder

#: Output tokens of a request without a limit, as OpenAI has it.
DEFAULT_TOKENS = 16
#: Choices in one answer: prompts times `n`.
MOST_CHOICES = 128
MOST_PROMPT_ITEMS = 200_000

if TYPE_CHECKING:
    Prompt = str | list[str] | list[int] | list[list[int]]
else:
    # msgspec tells one kind of array in a union, not three: that all items are of one kind is a rule of its own.
    Prompt = str | Annotated[list[str | Token | TokenNumbers], Meta(min_length=1, max_length=MOST_PROMPT_ITEMS)]


class CompletionsRequest(RequestFields, kw_only=True):
    """A valid completion request; an absent or null field is None."""

    model: Core[Annotated[str, Meta(min_length=1, max_length=256)]]
    prompt: Core[Prompt | None] = None
    suffix: Semantic[str | None] = None
    max_tokens: Core[Annotated[int, Meta(ge=0, le=2**63 - 1)] | None] = None
    stream: Core[bool | None] = None
    stream_options: Core[StreamOptions | None] = None
    temperature: Sampling[Annotated[float, Meta(ge=0, le=2)] | None] = None
    top_p: Sampling[Annotated[float, Meta(ge=0, le=1)] | None] = None
    presence_penalty: Sampling[Penalty | None] = None
    frequency_penalty: Sampling[Penalty | None] = None
    seed: Sampling[Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)] | None] = None
    stop: Sampling[Stop | None] = None
    n: Semantic[Annotated[int, Meta(ge=1, le=128)] | None] = None
    best_of: Semantic[Annotated[int, Meta(ge=0, le=20)] | None] = None
    logprobs: Semantic[Annotated[int, Meta(ge=0, le=5)] | None] = None
    echo: Semantic[bool | None] = None
    logit_bias: Semantic[dict[TokenId, Annotated[int, Meta(ge=-100, le=100)]] | None] = None
    user: Hint[str | None] = None

    @property
    def prompts(self) -> list[str] | list[list[int]]:
        """Each prompt: texts, or lists of token numbers; none for a null."""
        if self.prompt is None:
            return []
        if isinstance(self.prompt, str):
            return [self.prompt]
        if isinstance(self.prompt[0], int):
            return [self.prompt]
        return self.prompt

    @property
    def forms(self) -> frozenset[str]:
        """The forms of the prompt beside one text."""
        prompts = self.prompts
        if not prompts:
            return frozenset({WITHOUT})
        forms = {TOKENS} if not isinstance(prompts[0], str) else set()
        return frozenset(forms | {PROMPTS} if len(prompts) > 1 else forms)

    @property
    def made(self) -> int:
        """How many texts the upstream makes for each prompt; not all of them are returned."""
        return max(self.n or 1, self.best_of or 1)

    def demands(self) -> frozenset[str]:
        asked = {name for name in ("suffix", "echo", "logit_bias") if getattr(self, name)}
        asked |= {name for name in ("n", "best_of") if (getattr(self, name) or 1) > 1}
        if self.logprobs is not None:
            asked.add("logprobs")
        if self.max_tokens == 0:
            asked.add("max_tokens")
        return frozenset(asked)


_body = BodyDecoder(CompletionsRequest, own=OWN, large_fields=frozenset({"prompt", "suffix"}))
#: Fields that mean the same to a chat.
_SHARED = frozenset(CompletionsRequest.field_classes) & frozenset(ChatRequest.field_classes)
_NOT_COPIED = frozenset({"max_tokens", "logprobs"})


def decode_completions(body: bytes | Examined) -> ChatRequest:
    """The request in `body`, translated; raises only BadRequest errors, each with the wire's code and exact param."""
    asked, fields = _body.decode(body)
    unexplained_names(body, len(fields))
    if "prompt" not in fields:
        raise MissingParameter("Missing required parameter: 'prompt'.", param="prompt")
    _check(asked)
    if asked.stop == []:
        asked.stop, fields["stop"] = None, NULL
    if NULL in fields.values():
        drop_nulls(fields)
    asked.take_fields(fields)
    request = _as_chat(asked)
    request.body = body if isinstance(body, bytes) else body.content
    if asked.prompt is None:
        fields["prompt"] = NULL
    demands = asked.demands()
    request.native = CompletionsNative(
        dialect=COMPLETIONS,
        fields=fields,
        dropped=asked.dropped,
        unknown=asked.unknown_fields,
        only_native=next((name for name in BEYOND_CHAT if name in demands), "prompt" if asked.forms else ""),
        prompts=asked.prompts,
        forms=asked.forms,
        demands=tuple(name for name in fields if name in demands),
        choices=asked.n or 1,
        echo=bool(asked.echo),
        logprobs=asked.logprobs is not None,
    )
    return request


def _check(asked: CompletionsRequest) -> None:
    """Raise the first broken rule."""
    if isinstance(asked.prompt, list):
        check_one_kind(asked.prompt, "prompt")
    if asked.stream_options is not None and asked.stream is not True:
        raise invalid("stream_options", "it is only allowed when 'stream' is true")
    if asked.best_of is not None:
        if asked.n is not None and asked.best_of < asked.n:
            raise invalid("best_of", "it must not be less than 'n'")
        if asked.best_of > 1 and asked.stream:
            raise invalid("best_of", "it cannot be more than 1 when 'stream' is true")
    texts = (asked.n or 1) * max(1, len(asked.prompts))
    if texts > MOST_CHOICES:
        text = f"The answer would have {texts} choices; at most {MOST_CHOICES} are allowed, 'n' for each prompt."
        raise OutOfRange(text, code="array_above_max_length", param="prompt")


def _as_chat(asked: CompletionsRequest) -> ChatRequest:
    """The chat request that it amounts to; `n` counts every text that an upstream makes."""
    chat_names = ChatRequest.field_classes
    foreign = [name for name in asked.extra if name in chat_names]  # of chats, and unknown to this dialect
    document: dict[str, Any] = {
        name: raw
        for name, raw in asked.fields.items()
        if (name in _SHARED and name not in _NOT_COPIED) or (name in asked.extra and name not in chat_names)
    }
    document["messages"] = [{"role": "user", "content": _content(asked.prompts)}]
    request = decode_chat_request(own_request(document))
    limit = DEFAULT_TOKENS if asked.max_tokens is None else asked.max_tokens
    request.max_tokens, request.fields["max_tokens"] = limit, Raw(b"%d" % limit)
    made = asked.made * max(1, len(asked.prompts))
    request.n = made if made > 1 else None
    request.dropped = (*asked.dropped, *map(header_name, foreign))
    return request


def _content(prompts: list[str] | list[list[int]]) -> Any:
    """The prompt as the content of a message; the gateway does not know the text of token numbers."""
    texts = [prompt for prompt in prompts if isinstance(prompt, str)]
    if len(texts) < 2:
        return texts[0] if texts else ""
    return [{"type": "text", "text": text} for text in texts]
