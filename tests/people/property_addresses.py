"""A message goes to the address that is stored, in each of 100,000 strange cases; `tox -e security` runs it."""

from __future__ import annotations

import pytest

from tests.people.test_mail_addresses import OpenInbox, assert_sent_as_stored, inbox

__all__ = ["inbox"]


@pytest.mark.holds("security.md#e-mail-addresses-and-invitations-5")
@pytest.mark.parametrize("seed", range(2, 22))
async def test_message_goes_to_the_address_that_is_stored_in_each_of_100000_cases(inbox: OpenInbox, seed: int) -> None:
    await assert_sent_as_stored(inbox, 5_000, seed=seed)
