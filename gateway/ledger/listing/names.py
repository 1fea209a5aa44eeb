"""The names of accounts and the ids of keys, each in its order."""

from __future__ import annotations

from gateway.ledger.listing.ordered_set import OrderedSet
from gateway.store.links import Links, slot

ACCOUNTS = "accounts"  # the set of all account names
ACCOUNT_ORDER = f"{{{ACCOUNTS}}}:o"  # in the slot of that set
KEY_ORDER = ":o"  # what the name of an order of keys has behind that of its set


def account_names(links: Links) -> OrderedSet:
    """The names of all accounts, in the order of their characters."""
    return OrderedSet(links.link(ACCOUNTS), ACCOUNTS, ACCOUNT_ORDER)


def key_ids(links: Links, account: str, user: str | None = None) -> OrderedSet:
    """The ids of an account's keys, or of those of one user in it, in their `key_order`."""
    name = f"{slot(account)}:ks" if user is None else keys_of_user(account, user)
    return OrderedSet(links.link(slot(account)), name, name + KEY_ORDER, _with_length, _without_length)


def keys_of_user(account: str, user: str) -> str:
    """The name of the set with the ids of a user's keys in an account."""
    return f"{slot(account)}:uk:{user}"


def _with_length(key_id: str) -> str:
    """The id behind its length: so the order of characters is that of `key_order`."""
    return f"{len(key_id):02}{key_id}"


def _without_length(written: str) -> str:
    return written[2:]
