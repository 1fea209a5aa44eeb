"""A request in the dialect in which it was sent, for an upstream that takes this dialect as it is.

Every chat request is translated into a `ChatRequest`, whatever its dialect. The gateway quotes, holds and charges that
one, and every provider can serve it. `ChatRequest.native` also keeps what was sent: a provider of the same dialect
forwards it, so that what has no place in a `ChatRequest` arrives, too. Sharp edge: the model, the output limit and the
service tier are those of the `ChatRequest`; a provider that forwards a native body writes them into it.
"""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase

from msgspec import Raw, Struct, structs

from gateway.schemas.chat_response import ChatChunk, ChatCompletion
from gateway.schemas.vendor_tools import NO_USES, VendorUses
from gateway.sse import CR, LF

COMPLETIONS, RESPONSES, MESSAGES, GEMINI = "completions", "responses", "messages", "gemini"  # dialects beside chat


class AcceptedFields(Struct, frozen=True):
    """What an upstream takes of a dialect; everything else is left out and named to the client."""

    fields: frozenset[str]  # of the body, top level
    betas: frozenset[str] | None = frozenset()  # flags in a header, such as `anthropic-beta`, as patterns; None: all
    tools: frozenset[str] = frozenset()  # types of tools that the upstream runs by itself
    forms: frozenset[str] = frozenset()  # of the prompt of a completion, beside one text

    def takes_flag(self, flag: str) -> bool:
        """Whether the upstream takes this flag."""
        if self.betas is None or flag in self.betas:
            return True
        return any(fnmatchcase(flag, pattern) for pattern in self.betas if "*" in pattern)


class NativeRequest(Struct, frozen=True):
    """What was sent."""

    dialect: str
    fields: Mapping[str, Raw]  # top level; nothing that no upstream may see
    betas: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()  # what is left out for every upstream of the dialect
    unknown: tuple[str, ...] | None = None  # fields that the dialect does not know; None: see `ChatRequest.extra`
    only_native: str = ""  # the path of a demand that no other upstream can meet
    compacts: str = ""  # a compaction is asked for: "item" in the input, or "document" by its own path
    version: str = ""  # of the dialect, where a header names it
    session: str = ""  # the client's own name of the conversation, where the dialect has a place for it

    def accepted_by(self, accepted: AcceptedFields) -> NativeRequest:
        """The same without what an upstream does not take; `dropped` names it."""
        fields = {name: raw for name, raw in self.fields.items() if name in accepted.fields}
        betas = tuple(flag for flag in self.betas if accepted.takes_flag(flag))
        if len(fields) == len(self.fields) and len(betas) == len(self.betas):
            return self
        left_out = [name for name in self.fields if name not in fields]
        left_out += [flag for flag in self.betas if flag not in betas]
        return structs.replace(self, fields=fields, betas=betas, dropped=(*self.dropped, *left_out))

    def vendor_uses(self, default: int) -> VendorUses:
        """The most uses of tools that the upstream runs; `default` where the caller sets no limit."""
        return NO_USES

    def with_tool_limit(self, accepted: AcceptedFields, uses: int) -> NativeRequest:
        """The same with `uses` as the limit of tools that the upstream runs, where the caller sets none."""
        return self


class NativeChunk(ChatChunk, kw_only=True):
    """A chunk, and the event of the upstream that it was read from."""

    event: bytes  # JSON, as it came, but in one line, as the client's event is written
    name: str  # of the event; "" where the dialect has no names

    def __post_init__(self) -> None:
        if LF in self.event or CR in self.event:  # between its values: a text in JSON holds none
            self.event = self.event.replace(b"\n", b" ").replace(b"\r", b" ")


class NativeCompletion(ChatCompletion, kw_only=True):
    """A whole answer, and the document of the upstream that it was read from."""

    document: bytes  # JSON, as it came
