"""A completion request as it was sent, for an upstream of the same dialect, and what only such an upstream can do."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec import structs

from gateway.errors import UnsupportedParameter
from gateway.schemas.native_request import AcceptedFields, NativeRequest

#: Forms of a prompt beside one text: several prompts, token numbers, and none at all.
PROMPTS, TOKENS, WITHOUT = "prompts", "tokens", "null"
#: Fields that a chat cannot meet. `n` and `logit_bias` are fields of chats, too.
BEYOND_CHAT = ("suffix", "echo", "best_of", "logprobs", "max_tokens")
#: Fields that are left out without a word: a hint, and those that are refused if they ask for something.
UNNAMED = frozenset({"suffix", "echo", "best_of", "logprobs", "n", "logit_bias", "user"})
ANY = "*"  # among the fields that an upstream takes: those that the gateway does not know
_SAID = {PROMPTS: "several prompts", TOKENS: "token numbers", WITHOUT: "null"}


class CompletionsNative(NativeRequest, frozen=True, kw_only=True):
    """What was sent, and what no chat request has a place for."""

    prompts: Sequence[str | Sequence[int]]  # none for a null
    forms: frozenset[str] = frozenset()  # of the prompt, beside one text
    demands: tuple[str, ...] = ()  # fields that a server has to know, in the order in which one is named
    choices: int = 1  # of each prompt in the answer
    echo: bool = False
    logprobs: bool = False

    @property
    def is_tokens(self) -> bool:
        """Whether the prompts are token numbers."""
        return TOKENS in self.forms

    @property
    def prompt_tokens(self) -> int:
        """The tokens of prompts that are token numbers."""
        return sum(map(len, self.prompts)) if self.is_tokens else 0

    def has_all(self, number: int) -> bool:
        """Whether so many choices are those of several prompts; without one, the others would be numbered wrongly."""
        return len(self.prompts) < 2 or number == self.choices * len(self.prompts)

    def prompt_of(self, index: int) -> str | Sequence[int]:
        """The prompt of a choice: those of the first prompt come first."""
        position = index // self.choices
        return self.prompts[position] if position < len(self.prompts) else ""

    def check_served(self, accepted: AcceptedFields | None) -> None:
        """UnsupportedParameter for what is demanded and an upstream lacks; None: it has no completions."""
        for name in self._lacking(accepted):
            what = "0 as 'max_tokens'" if name == "max_tokens" else f"'{name}' in completions"
            raise UnsupportedParameter(f"This model does not support {what}.", param=name)
        for form in sorted(self.forms if accepted is None else self.forms - accepted.forms):
            raise UnsupportedParameter(f"This model does not support {_SAID[form]} as 'prompt'.", param="prompt")

    def _lacking(self, accepted: AcceptedFields | None) -> Iterator[str]:
        if accepted is None:
            return (name for name in self.demands if name in BEYOND_CHAT)
        # A limit of 0 is for the prompt alone: a server without `echo` would make a token all the same.
        needed = {"max_tokens": "echo"}
        return (name for name in self.demands if needed.get(name, name) not in accepted.fields)

    def accepted_by(self, accepted: AcceptedFields) -> NativeRequest:
        """The same without what an upstream does not take; a field that asks for nothing is left out unnamed."""
        taken = accepted.fields
        if ANY in taken:
            taken = taken.union(self.unknown or ())
        fields = {name: raw for name, raw in self.fields.items() if name in taken or name not in UNNAMED}
        return NativeRequest.accepted_by(structs.replace(self, fields=fields), structs.replace(accepted, fields=taken))
