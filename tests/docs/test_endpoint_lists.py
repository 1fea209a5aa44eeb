"""Where the documentation lists the endpoints of models, it lists all of them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import pytest

from gateway.config.settings import Endpoint

ROOT = Path(__file__).parents[2]
NAME = rf"`?(?:{'|'.join(get_args(Endpoint))})`?"
#: At least three of the names, one after the other.
LIST = re.compile(rf"{NAME}(?:(?:, | and | or | \| ){NAME}){{2,}}")
PLACES = {
    "conf/gateway.toml": 1,
    "docs/cli/gateway.md": 1,
    "docs/cli/keys.md": 2,
    "docs/configuration.md": 1,
    "docs/plugins.md": 1,
    "docs/providers/matrix.md": 1,
}


@pytest.mark.parametrize("place", PLACES)
def test_each_list_of_endpoints_has_all_of_them(place: str) -> None:
    found = LIST.findall((ROOT / place).read_text(encoding="utf-8"))
    assert [sorted(re.findall(r"\w+", text.replace(" and ", " ").replace(" or ", " "))) for text in found] == [
        sorted(get_args(Endpoint))
    ] * PLACES[place]
