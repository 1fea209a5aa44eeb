"""What the requests of all JSON endpoints have in common: the table of their fields as sent, and what became of it.

A request type extends `RequestFields`, gives each of its fields a class (`n: Semantic[int | None] = None`), and is
filled in by `take_fields` after its `BodyDecoder`. The class says what happens to a field that the chosen upstream
cannot honour (docs/providers/matrix.md); `gateway.routing.request_adaptation` acts on it. Sharp edge: `fields` is
shared by all attempts of a call; whoever changes one copies the table first.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self, TypeVar, get_args, get_origin, get_type_hints

from msgspec import Raw, Struct, field, structs

from gateway.errors import BadRequest, UnknownParameter, UnsupportedParameter
from gateway.schemas.forbidden import header_name, strip_forbidden

if TYPE_CHECKING:
    FieldTable = dict[str, Raw]
    Names = tuple[str, ...]
    Body = bytes
else:
    # The gateway's own attributes: Raw lets a caller's field of the same name pass unread, and it is then overwritten.
    FieldTable = Names = Body = Raw

FieldClass = Literal["core", "semantic", "sampling", "hint"]
FIELD_CLASSES = get_args(FieldClass)
T = TypeVar("T")
Core = Annotated[T, "core"]
Semantic = Annotated[T, "semantic"]
Sampling = Annotated[T, "sampling"]
Hint = Annotated[T, "hint"]
NULL = Raw(b"null")
OWN = frozenset({"fields", "extra", "dropped", "body", "native", "cache_marks"})  # for the BodyDecoder


class RequestFields(Struct, kw_only=True):
    """Base of the request types."""

    #: Every top-level field as sent, forbidden ones removed.
    fields: FieldTable = field(default_factory=dict)
    #: Names of unknown top-level fields that are in `fields`.
    extra: Names = ()
    #: What was removed, written so that it may stand in `x-gateway-dropped-params`.
    dropped: Names = ()
    #: The request as it was sent, for estimates of its size; empty for a request that was not decoded from JSON.
    body: Body = b""

    #: The class of every known field; unknown ones have none.
    field_classes: ClassVar[Mapping[str, FieldClass]] = {}

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        marks = {
            name: hint.__metadata__[-1]
            for name, hint in get_type_hints(cls, include_extras=True).items()
            if get_origin(hint) is Annotated
        }
        cls.field_classes = {name: mark for name, mark in marks.items() if mark in FIELD_CLASSES}

    def take_fields(self, fields: dict[str, Raw], *, searched: Collection[str] = ()) -> None:
        """Keep the table of fields without what no upstream may see; `searched` are known fields that may hide it."""
        known = self.field_classes
        self.fields, self.extra, self.dropped = fields, tuple(name for name in fields if name not in known), ()
        suspects = (*self.extra, *(name for name in searched if name in fields))
        if suspects:
            self.dropped = tuple(strip_forbidden(fields, suspects))
            self.extra = tuple(name for name in self.extra if name in fields)

    def present_fields(self) -> frozenset[str]:
        """Names of the fields that were given a value other than null."""
        return frozenset(name for name, raw in self.fields.items() if raw != NULL)

    def demands(self) -> frozenset[str]:
        """The semantic fields in a form that an upstream must honour or refuse."""
        asked = (name for name, kind in self.field_classes.items() if kind == "semantic")
        return frozenset(name for name in asked if getattr(self, name) not in (None, False))

    def unsupported(self, demand: str) -> BadRequest:
        """The refusal of something demanded that no upstream of the model can do."""
        return UnsupportedParameter(f"This model does not support '{demand}'.", param=demand)

    def without(self, names: Collection[str]) -> Self:
        """The same without those fields, known or not."""
        fields = {name: raw for name, raw in self.fields.items() if name not in names}
        unset: dict[str, Any] = {name: None for name in names if name in self.field_classes}
        extra = tuple(name for name in self.extra if name in fields)
        return structs.replace(self, fields=fields, extra=extra, **unset)

    def drop(self, name: str) -> Self:
        """The same without a known field that was given; `x-gateway-dropped-params` will name it."""
        return structs.replace(self.without((name,)), dropped=(*self.dropped, name))

    @property
    def unknown_fields(self) -> tuple[str, ...]:
        """The names of unknown top-level fields, those that were removed among them."""
        return (*self.extra, *(name for name in self.dropped if "[" not in name and name not in self.field_classes))

    def refuse_unknown(self) -> None:
        """Raise UnknownParameter when there is an unknown field: the operator's `unknown_params = "reject"`."""
        unknown = self.unknown_fields
        if unknown:
            name = header_name(unknown[0])
            raise UnknownParameter(f"Unknown parameter: '{name}'.", param=name)
