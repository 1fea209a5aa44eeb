"""The pages of providers list what their upstreams take of a Messages request, as the data has it."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway import AcceptedFields
from gateway_providers.anthropic.accepted import ACCEPTED, VERTEX
from gateway_providers.bedrock.accepted import ACCEPTED as BEDROCK

PAGES = Path(__file__).parents[2] / "docs" / "providers"
TABLES = (("anthropic", ACCEPTED), ("anthropic", VERTEX), ("bedrock", BEDROCK))


def rows(accepted: AcceptedFields) -> list[str]:
    """The rows of the table."""
    parts = {"fields": accepted.fields, "flags": accepted.betas or (), "tools": accepted.tools}
    return [f"| {part} | {', '.join(f'`{name}`' for name in sorted(names))} |" for part, names in parts.items()]


@pytest.mark.parametrize(("page", "accepted"), TABLES)
def test_page_lists_what_the_upstream_accepts(page: str, accepted: AcceptedFields) -> None:
    text = (PAGES / f"{page}.md").read_text(encoding="utf-8")
    assert f"| part | accepted |\n| --- | --- |\n{chr(10).join(rows(accepted))}\n" in text
