"""A vendor's pydantic models as judges: a value must validate, and no key of it may be one that they do not know."""

from __future__ import annotations

from typing import Any

import msgspec
from pydantic import BaseModel, TypeAdapter, ValidationError


def faults(value: Any, kind: Any) -> list[str]:
    """What is wrong with `value` as a `kind`; empty when nothing is."""
    adapter: TypeAdapter[Any] = TypeAdapter(kind)
    try:
        return unknown(adapter.validate_json(msgspec.json.encode(value), strict=True))
    except ValidationError as error:
        return [str(error)]


def unknown(model: Any, path: str = "") -> list[str]:
    """Keys that the vendor's models do not know, at any depth."""
    if isinstance(model, list):
        return [name for index, item in enumerate(model) for name in unknown(item, f"{path}[{index}]")]
    if not isinstance(model, BaseModel):
        return []
    extra = [f"{path}.{name}" for name in model.model_extra or ()]
    fields = type(model).model_fields
    return extra + [name for field in fields for name in unknown(getattr(model, field), f"{path}.{field}")]
