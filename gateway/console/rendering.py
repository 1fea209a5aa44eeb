"""HTML of templates, with what each of them may use."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tornado.template import Loader

from gateway.config.currency import currency_of
from gateway.config.settings import Settings
from gateway.console import elements
from gateway.console.outcomes import outcome_tone
from gateway.console.paths import path_with

# It compiles each template once in a process.
TEMPLATES = Loader(str(Path(__file__).parent / "templates"), autoescape="xhtml_escape")


def render(template: str, settings: Settings, values: Mapping[str, Any]) -> bytes:
    """The HTML of a page, or of a part of one: such a part has nothing of a visit, and several readers can get it."""
    root_path, currency = settings.console.root_path, currency_of(settings)
    names = {
        "url": lambda path, **query: root_path + path_with(path, **query),
        "when": elements.time_element,
        "amount": elements.amount_text,
        "money": lambda amount: elements.money_text(amount, currency),
        "value": elements.value_element,
        "number": elements.number_text,
        "counted": elements.counted_text,
        "duration": elements.duration_text,
        "size": elements.size_text,
        "percent": elements.percent_text,
        "outcome_tone": outcome_tone,
        "currency": currency,
        "is_demo": settings.is_demo,
    }
    return TEMPLATES.load(template).generate(**names, **values)
