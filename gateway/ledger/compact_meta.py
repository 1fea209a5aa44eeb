"""The compact form of a line's meta in the store: a JSON array by position instead of an object by name.

`{"key":"key_1","model":"m","usage":{"in_text":3},"attempts":1,"outcome":"ok"}` is `["key_1","m",0,0,[3],1,"ok"]`, about
half of the bytes. Everything else of the meta is in one object at the end, as it was. Only the store has this form:
`expanded` gives the same bytes as before, so the hash chain, the database, archives and journals do not change. A meta
that would not come back to the byte is stored as it is. A gateway from before this form cannot read such lines.
"""

from __future__ import annotations

from typing import Any

import msgspec

#: The places of an array after key and model, in the order of `LineMeta`; 0 is a name that the meta does not have.
PLACES = (
    "provider", "upstream", "usage", "attempts", "outcome", "price", "hold", "endpoint", "duration_ms",
    "first_token_ms", "user",
)  # fmt: skip
#: The places of a usage, the most frequent ones first; 0 is a count that it does not have.
COUNTS = (
    "in_text", "out_text", "in_cached", "out_reasoning", "in_cache_write_short", "in_cache_write_long", "in_image",
    "out_image", "in_audio", "out_audio",
)  # fmt: skip
#: The order of the names in a meta and in its usage, those of `LineMeta` and `Usage`; a test holds them together.
ORDER = (
    "key", "model", "provider", "upstream", "usage", "estimated", "attempts", "outcome", "price", "hold", "clamped",
    "reclaimed", "served_model", "endpoint", "service_tier", "duration_ms", "first_token_ms", "user", "tags",
    "price_factor", "upstream_cost", "answers", "hooks", "session", "joined",
)  # fmt: skip
COUNTS_ORDER = (
    "in_text", "in_cached", "in_cache_write_short", "in_cache_write_long", "in_audio", "in_image", "out_text",
    "out_reasoning", "out_audio", "out_image",
)  # fmt: skip

_encode = msgspec.json.Encoder().encode
_read_object = msgspec.json.Decoder(dict[str, Any]).decode
_read_array = msgspec.json.Decoder(list[Any]).decode
_COUNTED = frozenset(COUNTS)


def compact(meta: str) -> str:
    """The compact form of a stored meta; the meta itself if its bytes would not come back, such as one of a refund."""
    try:
        text = _encode(_array(_read_object(meta))).decode()
        return text if expanded(text) == meta else meta
    except (ValueError, KeyError, TypeError):  # lone surrogates, or another form
        return meta


def expanded(meta: str) -> str:
    """The meta of a compact form, with the bytes that it had; another text comes back as it is. ValueError."""
    if not meta.startswith("["):
        return meta
    try:
        key, model, *values = _read_array(meta)
        named = dict(values.pop()) if values and isinstance(values[-1], dict) else {}
        found = {name: value for name, value in zip(PLACES, values, strict=False) if value != 0}
        if isinstance(found.get("usage"), list):
            counts = dict(zip(COUNTS, found["usage"], strict=False))
            found["usage"] = {name: counts[name] for name in COUNTS_ORDER if counts.get(name)}
    except (TypeError, ValueError) as error:
        raise ValueError(f"not the compact form of a meta: {error}") from None
    named.update(found, key=key, model=model)
    return _encode({name: named[name] for name in ORDER if name in named}).decode()


def _array(meta: dict[str, Any]) -> list[Any]:
    usage = meta.get("usage")
    if isinstance(usage, dict) and usage and _COUNTED.issuperset(usage):
        meta["usage"] = _cut([usage.get(name, 0) for name in COUNTS])
    elif usage is not None:
        meta = {"": meta.pop("usage"), **meta}  # the scripts of the store read the session at the end
    values = [meta.pop("key"), meta.pop("model"), *[meta.pop(name, 0) for name in PLACES]]
    rest = {name or "usage": value for name, value in meta.items()}
    return [*_cut(values), rest] if rest else _cut(values)


def _cut(values: list[Any]) -> list[Any]:
    """Without the zeros at the end."""
    while values and values[-1] == 0:
        values.pop()
    return values
