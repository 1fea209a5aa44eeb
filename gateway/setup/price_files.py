"""Reads a file of public prices in the gateway's own form, in LiteLLM's, or in that of OpenRouter's list of models.

A row is a price as a configuration writes it; its amounts are exact decimals, rounded up to nine places. A row that is
wrong is named in `bad`. What has no price of a fixed amount, or is of a kind that the gateway does not serve, is left
out and counted.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from decimal import ROUND_CEILING, Decimal
from typing import Any, Final

from msgspec import Struct

from gateway.amounts import NANO
from gateway.config.price_settings import PriceSettings
from gateway.config.toml_reader import TomlReader
from gateway.config.validation import check_dated_prices
from gateway.discovery.checked_lists import MOST_EACH, MOST_PER_MILLION, checked_amounts
from gateway.errors import InvalidValue
from gateway.plugins.model_list import openrouter_price
from gateway.setup.litellm_models import MODES, PRICES, PRICES_PER_UNIT, VENDORS

MOST_BYTES: Final = 32 * 1024 * 1024
MOST_ROWS: Final = 50_000
_NAME = re.compile(r"[A-Za-z0-9@~_-][A-Za-z0-9@~_.-]{0,62}/[\x21\x23-\x5b\x5d-\x7e]{1,190}", re.ASCII)
_PLACES = Decimal(1).scaleb(-9)
Row = list[dict[str, Any]]  # the prices of a model in the order of their dates


class PriceFile(Struct):
    """The rows of a file by the names of public prices, and what is not among them."""

    form: str  # "gateway", "litellm" or "openrouter"
    rows: dict[str, Row]
    bad: dict[str, str]  # what is wrong with a row, by its name
    left_out: dict[str, int]  # how many rows, by reason


def read_price_file(raw: bytes) -> PriceFile:
    """The prices in a file; InvalidValue if it has none of the forms."""
    if len(raw) > MOST_BYTES:
        raise InvalidValue(f"the file is over {MOST_BYTES} bytes")
    document = _document(raw)
    if isinstance(document.get("data"), list):
        form, rows = "openrouter", _of_openrouter(document["data"])
    elif raw.lstrip()[:1] == b"{":
        form, rows = "litellm", _of_litellm(document)
    else:
        form, rows = "gateway", ((name, _own(row)) for name, row in document.items())
    found = PriceFile(form, {}, {}, {})
    for number, (name, row) in enumerate(rows):
        if number >= MOST_ROWS:
            raise InvalidValue(f"the file has more than {MOST_ROWS} rows")
        _add(found, name, row)
    return found


def _document(raw: bytes) -> Mapping[str, Any]:
    try:
        text = raw.decode()
        if text.lstrip()[:1] != "{":
            return tomllib.loads(text, parse_float=Decimal)
        document = json.loads(text, parse_float=Decimal, parse_constant=str, object_pairs_hook=_unique)
    except RecursionError:
        raise InvalidValue("the file is nested too deeply") from None
    except ArithmeticError:
        raise InvalidValue("the file has a number that is too long or too large") from None
    except ValueError as error:  # of both decoders, and of UTF-8
        raise InvalidValue(f"the file is neither TOML nor JSON: {error}") from None
    assert isinstance(document, dict)
    return document


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key stands twice in an object")
    return found


class _LeftOut(Exception):
    """A row without a price that the gateway can charge; the text says why, in a word or two."""


def _add(found: PriceFile, name: str, row: Row | Exception) -> None:
    shown = "".join(character if character.isprintable() else "?" for character in name[:100])
    if name in found.rows and found.rows[name] != row:
        row = _LeftOut("another price of the same name")
    if isinstance(row, _LeftOut):
        found.left_out[str(row)] = found.left_out.get(str(row), 0) + 1
    elif isinstance(row, Exception):
        found.bad[shown] = str(row)
    elif not _NAME.fullmatch(name):
        found.bad[shown] = "a name is PROVIDER/MODEL"
    elif problem := row_problem(row):
        found.bad[shown] = problem
    else:
        found.rows[name] = row


def row_problem(row: Row) -> str:
    """What is wrong with the prices of a model; "" if nothing is."""
    if not all(map(_is_printable, row)):
        return "it has keys or texts with control characters"  # they could hide a change from who is asked
    reader = TomlReader("")
    prices = [price for table in row if (price := reader.struct(PriceSettings, table, ())) is not None]
    if not reader.problems:
        check_dated_prices(prices, reader, ())
        for price in prices:
            _check_bounds(price, reader)
    if any(price.currency not in ("", "USD") for price in prices):
        reader.problem(("currency",), "public prices are in USD")
    return "; ".join(f"{problem.key}: {problem.message}".lstrip(": ") for problem in reader.problems[:3])


def _is_printable(value: object) -> bool:
    """Whether a terminal shows all keys and texts in it."""
    if isinstance(value, dict):
        return all(_is_printable(one) for pair in value.items() for one in pair)
    if isinstance(value, list):
        return all(map(_is_printable, value))
    return not isinstance(value, str) or value.isprintable()


def _check_bounds(price: PriceSettings, reader: TomlReader) -> None:
    for amounts in (price.amounts(), *(tier.amounts() for tier in price.tiers), *price.per_image.values()):
        for name, amount in amounts.items():
            is_each = name.startswith(("per_second", "per_request", "per_search", "per_web", "minimum"))
            most = MOST_EACH if is_each else MOST_PER_MILLION
            if amount > most:
                reader.problem((name,), f"more than {most // NANO}")


# The forms -----------------------------------------------------------------------------------------------------------


def _own(row: object) -> Row | Exception:
    tables: list[Any] = row if isinstance(row, list) else [row]
    if not tables or not all(isinstance(table, dict) for table in tables):
        return InvalidValue("expected a price, or an array of prices")
    return [dict(table) for table in tables]


def _of_openrouter(entries: Iterable[object]) -> Iterator[tuple[str, Row | Exception]]:
    for number, entry in enumerate(entries, 1):
        name = entry.get("id") if isinstance(entry, Mapping) else None
        if not isinstance(name, str):
            yield f"entry {number}", InvalidValue("it has no id")
            continue
        assert isinstance(entry, Mapping)
        yield f"openrouter/{name}", _openrouter_row(entry.get("pricing"))


def _openrouter_row(pricing: object) -> Row | Exception:
    price = openrouter_price(pricing)
    if price is None:
        return _LeftOut("no price")
    if isinstance(pricing, Mapping) and str(pricing["prompt"]) == "-1":
        return _LeftOut("no fixed price")  # a router over other models
    try:
        amounts = checked_amounts(price)
    except ValueError as error:
        return error
    if not any(amounts.values()):
        return _LeftOut("free")
    return [{name: Decimal(amount) / NANO for name, amount in amounts.items()}]


_ABOVE = re.compile(r"(.+)_above_([0-9]{1,5})k_tokens", re.ASCII)
_LITELLM: Final = {**PRICES, "cache_creation_input_token_cost_above_1hr": "cache_write_long"}
_LITELLM_VENDORS: Final = {
    **VENDORS, "bedrock_converse": "aws", "cohere_chat": "cohere", "fireworks_ai": "fireworks", "voyage": "voyageai",
    "moonshot": "moonshotai", "together": "together", "text-completion-openai": "openai",
}  # fmt: skip


def _of_litellm(document: Mapping[str, Any]) -> Iterator[tuple[str, Row | Exception]]:
    for name, entry in document.items():
        if name == "sample_spec":
            continue
        if not isinstance(entry, Mapping):
            yield name, InvalidValue("expected an object")
            continue
        yield _litellm_name(name, entry), _litellm_row(entry)


def _litellm_name(name: str, entry: Mapping[str, Any]) -> str:
    """`gpt-4o` of `openai` is openai/gpt-4o, and `gemini/gemini-2.5-pro` is google/gemini-2.5-pro."""
    vendor = str(entry.get("litellm_provider", ""))
    own = name.removeprefix(f"{vendor}/")
    return f"{_LITELLM_VENDORS.get(vendor, vendor)}/{own}"


def _litellm_row(entry: Mapping[str, Any]) -> Row | Exception:
    mode = entry.get("mode", "chat")
    if mode not in MODES:
        return _LeftOut(f"mode {mode!a}"[:40] if not str(mode).isprintable() else f"mode {mode}"[:40])
    try:
        price = _litellm_amounts(entry, "")
        bounds = sorted({int(found[2]) for key in entry if (found := _ABOVE.fullmatch(key)) and found[1] in _LITELLM})
        tiers = [
            {"above_input_tokens": bound * 1000, **_litellm_amounts(entry, f"_above_{bound}k_tokens")}
            for bound in bounds
        ]
    except ValueError as error:
        return error
    if not any(price.values()):
        return _LeftOut("no price")
    return [{**price, **({"tiers": tiers} if tiers else {})}]


def _litellm_amounts(entry: Mapping[str, Any], end: str) -> dict[str, Decimal]:
    """The amounts of an entry whose keys have this end."""
    amounts = {}
    for names, factor in ((_LITELLM, 1_000_000), (PRICES_PER_UNIT if not end else {}, 1)):
        for name, key in names.items():
            value = entry.get(name + end)
            # 0 for anything but the text says that it is not told apart.
            if value is not None and (value != 0 or key in ("input", "output")):
                amounts[key] = _amount(name + end, value) * factor
    if not end and entry.get("mode") == "image_generation" and (each := entry.get("output_cost_per_image")):
        amounts["per_image"] = {"*": _amount("output_cost_per_image", each)}  # type: ignore[assignment]
    return {
        key: value.quantize(_PLACES, ROUND_CEILING).normalize() if isinstance(value, Decimal) else value
        for key, value in amounts.items()
    }


def _amount(name: str, value: object) -> Decimal:
    """A number of the file; ValueError names the key."""
    if isinstance(value, bool) or not isinstance(value, (int, Decimal)):
        raise ValueError(f"{name}: {str(value)[:40]!r} is no number")
    number = Decimal(value)
    if not number.is_finite() or number < 0 or number.adjusted() > 12:
        raise ValueError(f"{name}: {str(value)[:40]!r} is no amount")
    return number
