"""Made-up completions: the answer of a chat to each prompt, its number of choices one after the other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec import structs

from gateway import AcceptedFields, ChatChunk, ChatRequest, CompletionUsage, UserMessage
from gateway.schemas.completions.native import ANY, PROMPTS, TOKENS, WITHOUT, CompletionsNative
from gateway.schemas.completions.request import CompletionsRequest

from .chat import ChatPlan
from .script import Script

ACCEPTED = AcceptedFields(
    frozenset(CompletionsRequest.field_classes) | {ANY}, forms=frozenset({PROMPTS, TOKENS, WITHOUT})
)


class CompletionPlan:
    """What to answer to one request."""

    def __init__(self, request: ChatRequest, native: CompletionsNative, script: Script) -> None:
        self._native = native
        self._prompts = [_text(prompt) for prompt in native.prompts] or [""]
        made = request.choices // len(self._prompts)
        self._plans = [ChatPlan(_asked(request, prompt, made), script) for prompt in self._prompts]
        self._returned = [ChatPlan(_asked(request, prompt, native.choices), script) for prompt in self._prompts]

    def chunks(self) -> Iterator[ChatChunk]:
        """Everything but usage."""
        for position, plan in enumerate(self._returned):
            prompt, first = self._prompts[position], position * self._native.choices
            offsets = dict.fromkeys(range(self._native.choices), 0)
            if self._native.echo:
                for index in offsets:
                    yield self._placed(ChatChunk.text(prompt, index=index), first, offsets)
            for chunk in plan.chunks():
                yield self._placed(chunk, first, offsets)

    def usage(self) -> CompletionUsage | None:
        """The counts of all texts that were made, or what the script makes of them."""
        counts = [plan.usage() for plan in self._plans]
        first = counts[0]
        if first is None or self._plans[0].script.usage != "right":
            return first
        prompt = sum(one.prompt_tokens for one in counts if one is not None)
        made = sum(one.completion_tokens for one in counts if one is not None)
        return CompletionUsage(prompt, made, prompt + made)

    def early_usage(self) -> CompletionUsage:
        """The count of the prompts, before any of the answer."""
        prompt = sum(plan.early_usage().prompt_tokens for plan in self._plans)
        return CompletionUsage(prompt, 0, prompt)

    def _placed(self, chunk: ChatChunk, first: int, offsets: dict[int, int]) -> ChatChunk:
        """The chunk with the number that its choice has among those of all prompts, and with its log probabilities."""
        [part] = chunk.choices
        text, offset = part.delta.content or "", offsets[part.index]
        offsets[part.index] += len(text)
        part.index += first
        if text and self._native.logprobs:
            tops = [{text: -0.5}]
            part.logprobs = {
                "tokens": [text], "token_logprobs": [-0.5], "top_logprobs": tops, "text_offset": [offset],
            }  # fmt: skip
        return chunk


def _asked(request: ChatRequest, prompt: str, choices: int) -> ChatRequest:
    return structs.replace(request, messages=[UserMessage(content=prompt)], n=choices, native=None)


def _text(prompt: str | Sequence[int]) -> str:
    return prompt if isinstance(prompt, str) else " ".join(map(str, prompt))
