"""An unreadable price refuses its model; the others follow from the list and from the own prices."""

from __future__ import annotations

import pytest

from gateway.amounts import NANO
from gateway.billing.price_terms import OwnPrice, PriceTerms, UnreadablePrice
from gateway.errors import PriceUnreadable


def test_unreadable_price_of_a_model_takes_the_place_of_the_list_price_and_of_the_factor_and_refuses() -> None:
    terms = PriceTerms("1", OwnPrice(2 * NANO), {"own": OwnPrice(3 * NANO), "broken": UnreadablePrice("why", 7)})
    assert (terms.of("own"), terms.of("other")) == (OwnPrice(3 * NANO), OwnPrice(2 * NANO))
    broken = terms.of("broken")
    assert broken is not None
    with pytest.raises(PriceUnreadable) as refused:
        broken.of(None)
    assert (refused.value.detail, refused.value.code) == ("why", "price_unreadable")
    assert "why" not in refused.value.body().decode()
