"""A Messages request as it was sent, for an upstream of the same dialect, and what its answer depends on."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase

import msgspec
from msgspec import UNSET, Raw, Struct, structs

from gateway.errors import UnsupportedParameter
from gateway.schemas.messages_options import ToolDefinition
from gateway.schemas.native_request import AcceptedFields, NativeRequest
from gateway.schemas.vendor_tools import NO_USES, VendorUses, tool_uses, with_max_uses

_encoder = msgspec.json.Encoder()
_array = msgspec.json.Decoder(list[Raw])
#: Fields that mean nothing without tools.
_WITH_TOOLS = ("tools", "tool_choice")


class VendorTool(Struct, frozen=True):
    """A tool that the vendor of the upstream defines."""

    type: str
    name: str


class MessagesNative(NativeRequest, frozen=True, kw_only=True):
    """What was sent, and what no chat request has a place for."""

    vendor_tools: tuple[VendorTool, ...] = ()
    only_native: str = ""  # the path of a demand that no upstream of another dialect can meet

    def check_served(self, accepted: AcceptedFields | None) -> None:
        """UnsupportedParameter for a demand that the upstream cannot meet; None: it does not have the dialect."""
        if not self.only_native:
            return
        if accepted is None or (self.only_native == "tool_choice" and not self._has_all_tools(accepted)):
            text = f"This model does not support this value of '{self.only_native}'."
            raise UnsupportedParameter(text, param=self.only_native)

    def accepted_by(self, accepted: AcceptedFields) -> NativeRequest:
        left = super().accepted_by(accepted)
        lacking = {tool.type for tool in self.vendor_tools if not is_accepted(tool.type, accepted.tools)}
        if not lacking or "tools" not in left.fields:
            return left
        fields = dict(left.fields)
        tools = [tool for tool in _array.decode(fields["tools"]) if _type.decode(tool).type not in lacking]
        fields["tools"] = Raw(_encoder.encode(tools))
        if not tools:
            for name in _WITH_TOOLS:
                fields.pop(name, None)
        return structs.replace(left, fields=fields, dropped=(*left.dropped, *dropped_tools(lacking)))

    def vendor_uses(self, default: int) -> VendorUses:
        return tool_uses(self.fields.get("tools", UNSET), default) if self.vendor_tools else NO_USES

    def with_tool_limit(self, accepted: AcceptedFields, uses: int) -> NativeRequest:
        if not self.vendor_tools or "tools" not in self.fields:
            return self
        tools = with_max_uses(self.fields["tools"], uses)
        return self if tools is self.fields["tools"] else structs.replace(self, fields={**self.fields, "tools": tools})

    def _has_all_tools(self, accepted: AcceptedFields) -> bool:
        return all(is_accepted(tool.type, accepted.tools) for tool in self.vendor_tools)


class _Typed(Struct):
    type: str | None = None


_type = msgspec.json.Decoder(_Typed)


def vendor_tools(tools: Sequence[ToolDefinition]) -> tuple[VendorTool, ...]:
    """The tools that the vendor of the upstream defines."""
    return tuple(VendorTool(str(tool.type), tool.name or "") for tool in tools if not tool.is_own)


def dropped_tools(types: Iterable[str]) -> list[str]:
    """The names of tools that are left out, for a response header."""
    return [f"tools[{name}]" for name in sorted(types)]


def is_accepted(name: str, patterns: Iterable[str]) -> bool:
    """Whether a name fits one of the patterns, such as `bash_*`."""
    return any(fnmatchcase(name, pattern) for pattern in patterns)
