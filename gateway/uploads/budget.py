"""How much of something a worker uses for request bodies at a time: in all, and for each account.

::

    share = budget.share(account)
    share.take(len(chunk))       # Overloaded or ConcurrencyLimited when there is no room
    share.close()                # the request has ended

A request that finds no room is refused. It does not wait, because a waiting request would keep what it has.
"""

from __future__ import annotations

from gateway.errors import ConcurrencyLimited, Overloaded


class Budget:
    """Bytes in memory, bytes on the disk, or files; a reload may change the limits."""

    __slots__ = ("_accounts", "_name", "most", "most_of_account", "used")

    def __init__(self, name: str, most: int, most_of_account: int) -> None:
        self._name = name  # for the log
        self.most = most
        self.most_of_account = most_of_account
        self.used = 0
        self._accounts: dict[str, int] = {}  # only accounts that use some

    def share(self, account: str) -> Share:
        """The share of one request."""
        return Share(self, account)

    def used_by(self, account: str) -> int:
        """How much the requests of an account use."""
        return self._accounts.get(account, 0)

    def take(self, account: str, size: int) -> None:
        """Use `size` more; Overloaded or ConcurrencyLimited if that is above a limit."""
        if self.used_by(account) + size > self.most_of_account:
            raise ConcurrencyLimited(
                "Too many request bodies of this account at the same time",
                detail=f"{self._name}: {self.used_by(account)} of {self.most_of_account} for this account",
            )
        if self.used + size > self.most:
            raise Overloaded(detail=f"{self._name}: {self.used} of {self.most}")
        self.used += size
        self._accounts[account] = self.used_by(account) + size

    def give_back(self, account: str, size: int) -> None:
        """Use `size` less."""
        self.used -= size
        left = self._accounts[account] - size
        if left:
            self._accounts[account] = left
        else:
            del self._accounts[account]


class Share:
    """What one request uses."""

    __slots__ = ("_account", "_budget", "_closed", "size")

    def __init__(self, budget: Budget, account: str) -> None:
        self._budget = budget
        self._account = account
        self._closed = False
        self.size = 0

    def take(self, size: int) -> None:
        """Use `size` more; Overloaded or ConcurrencyLimited if that is above a limit."""
        if size and not self._closed:
            self._budget.take(self._account, size)
            self.size += size

    def give_back(self, size: int) -> None:
        """Use `size` less."""
        if size and not self._closed:
            self.size -= size
            self._budget.give_back(self._account, size)

    def close(self) -> None:
        """Give everything back. Later calls change nothing: a request may end while a thread works for it."""
        self.give_back(self.size)
        self._closed = True
