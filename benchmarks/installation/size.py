"""How large an installation is, and what everything in it is called."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

LARGE = "acme"  # the account that has as many keys, members and calls as there are accounts
WIDEST = 10_000  # accounts of one person at most
LEAST_MODELS, MOST_MODELS = 10, 5_000
ACCOUNTS_PER_MODEL = 10


class Size(Struct, frozen=True):
    """So many accounts, keys, users and calls; and so many keys, members and calls of the account LARGE."""

    accounts: int
    least_models: int = LEAST_MODELS

    @property
    def models(self) -> int:
        """The number of models: a tenth of that of accounts, within limits."""
        return min(max(self.accounts // ACCOUNTS_PER_MODEL, self.least_models), MOST_MODELS)

    @property
    def width(self) -> int:
        """The accounts of the person `WIDE`."""
        return min(self.accounts, WIDEST)

    def account_names(self) -> Iterator[str]:
        """The accounts beside LARGE."""
        return (f"a{number:07}" for number in range(self.accounts))

    def model_names(self) -> Iterator[str]:
        """The models."""
        return (f"mock{number:05}" for number in range(self.models))


WIDE = "usr_wide"  # the id of the person who has many accounts


def user_id(number: int) -> str:
    """The id of a user."""
    return f"usr_{number:08}"
