"""The provider matrix in the docs says what the code does."""

from __future__ import annotations

import pytest

from tests.provider_matrix import PAGE, built_in_providers, page


@pytest.mark.holds("README.md#serve-real-models-2")
def test_page_equals_the_matrix_generated_from_the_code() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run python -m tests.provider_matrix"


def test_every_built_in_provider_has_a_page_of_its_own() -> None:
    assert {path.stem for path in PAGE.parent.glob("*.md")} - {"matrix", "local-servers"} == set(built_in_providers())
