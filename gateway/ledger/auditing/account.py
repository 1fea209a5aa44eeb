"""Proves one account: adds up its ledger and compares the sums with what is stored.

Rules, beside those of `lines` and `costs`:

- `account`: the account's hash exists.
- `balance`, `seq`: the sum of the lines is the balance, and the number of the last one the account's counter.
- `free`: the balance less the floor is at least what running calls hold, unless lines explain what is missing.
- `held`, `expiries`: the holds add up to the amount held, and each has an expiry.
- `spent KEY`, `key_held KEY`: the same sums per key.
- `member_spent USER`, `member_held USER`: the same sums over the keys of a user.
- `key KEY`: each key exists and is in the account's set.
- `lease ID`, `leases`: no lease ends later than `LONGEST` from now, and leases can be read.
- `order`: what lists the account's keys has the names of the set of them.
- `price MODEL`: the account's own price of the model can be read.
- `hold ID`, `unreadable`: what is stored can be read.

An audit may run while the gateway serves, and on a replica: the account's own values and its last line are of one
moment. See `reader` for an account that holds much.

The sums of lines that have left the store are taken from the archive checkpoint. If archives are given, `archive …`
rules compare their hashes and sums with the checkpoint, and lines that a crash left in both places with the stream.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from msgspec import Struct

from gateway.billing.price_terms import UnreadablePrice
from gateway.ledger.account_terms import read_own_price, read_own_prices
from gateway.ledger.archive import ArchiveProof
from gateway.ledger.archive_checkpoint import (
    ArchiveCheckpoint,
    archive_checkpoint_of,
    archived_lines,
    read_archive_checkpoint,
)
from gateway.ledger.auditing.costs import PriceBook
from gateway.ledger.auditing.lines import LinePass
from gateway.ledger.auditing.reader import Contents, Head, KeySums, read_account
from gateway.ledger.auditing.report import SHOWN, AuditReport, Mismatch, Overdrawn
from gateway.ledger.listing import names as listed_names
from gateway.ledger.listing.ordered_set import SMALL
from gateway.ledger.scripts import Scripts
from gateway.store.connection import RedisReplyError
from gateway.store.links import Links

TRIES = 5  # lines may leave the store between two reads
LONGEST = 3_600_000_000  # µs; a lease is renewed for a minute


class _Held(Struct):
    """The sums of the hold records, in nano-units."""

    total: int = 0
    by_key: dict[str, int] = {}
    by_user: dict[str, int] = {}


class AccountAudit:
    """Audits accounts of one store; `key_ids` are the keys of the account that a scan of the store has found."""

    def __init__(self, links: Links, scripts: Scripts) -> None:
        self._links = links
        self._scripts = scripts
        self._prices = PriceBook(links)

    async def audit(
        self, account: str, *, key_ids: Iterable[str] = (), proof: ArchiveProof | None = None
    ) -> AuditReport:
        """The report on one account, and with `proof` also on its archives; StoreUnavailable if it is unreachable."""
        for _ in range(TRIES):
            one = _OneAccount(account, AuditReport(), proof)
            try:
                checkpoint = await one.check(self._links, self._scripts, self._prices, key_ids)
                moved = await archived_lines(self._links, account) != checkpoint.n
                if not moved and one.report.accounts:  # an account that is being created gets its hash in a moment
                    break
            except (RedisReplyError, ValueError, LookupError) as error:
                # A value of another type than the gateway writes: one finding, and the other accounts are audited.
                text = (error.detail or "") if isinstance(error, RedisReplyError) else str(error)
                one.expect("unreadable", "values as the gateway writes them", text)
                break
        return one.report


class _OneAccount:
    """The comparison of one account."""

    def __init__(self, account: str, report: AuditReport, proof: ArchiveProof | None) -> None:
        self.report = report
        self._account = account
        self._proof = proof

    def expect(self, rule: str, expected: object, found: object) -> None:
        """Report a mismatch if the two differ."""
        if str(expected) != str(found):
            self.report.mismatches.append(Mismatch(self._account, rule, str(expected), str(found)))

    async def check(
        self, links: Links, scripts: Scripts, prices: PriceBook, key_ids: Iterable[str]
    ) -> ArchiveCheckpoint:
        """Compare everything; returns the archive checkpoint that was used."""
        head, contents = await read_account(links, scripts, self._account)
        if contents is None:
            self.report.moving.append(self._account)
            checkpoint = await read_archive_checkpoint(links, self._account)
        else:
            checkpoint = archive_checkpoint_of(contents.carried)
        if self._proof is not None:
            for rule, expected, found in (*self._proof.faults, *_checkpoint_faults(checkpoint, self._proof)):
                self.expect(rule, expected, found)
            self.report.lines += min(self._proof.lines, checkpoint.n)
        self.report.left_lines += max(0, checkpoint.n - (self._proof.lines if self._proof is not None else 0))
        surplus = self._proof.surplus if self._proof is not None else {}
        lines = LinePass(self._account, checkpoint.copy(), surplus, self.report)
        await lines.read(links, prices, head.last.decode())
        if head.balance is None:
            self.expect("account", "a balance", "none")
        else:
            self.report.accounts += 1
            self._compare_head(head, lines)
        if contents is not None:
            self._compare_holds(head, contents, lines)
            await self._compare_keys(links, head, contents, {*key_ids, *_owners(lines)})
        await self._check_order(links, head)
        self._check_lease(head, head.lease, head.lease_ends)
        if head.price_epoch is not None:
            await self._check_prices(links)
        return checkpoint

    async def _check_order(self, links: Links, head: Head) -> None:
        if head.ordered < 0 or head.ordered > SMALL:  # that of fewer keys is not used
            self.report.add_order(self._account, await listed_names.key_ids(links, self._account).differences())

    async def _check_prices(self, links: Links) -> None:
        _, _, forms = await read_own_prices(links, self._account)
        for model, form in sorted(forms.items()):
            price = read_own_price(form)
            if isinstance(price, UnreadablePrice):
                self.expect(f"price {model}", "a price", f"unreadable: {price.reason}")

    def _compare_head(self, head: Head, lines: LinePass) -> None:
        balance, held, floor = (int(value or b"0") for value in (head.balance, head.held, head.floor))
        if lines.ends_readable:
            self.expect("balance", lines.sums.balance, balance)
            self.expect("seq", lines.sums.n, int(head.seq or b"0"))
        lacking = held - (balance - floor)
        if lacking <= 0:
            return
        if lines.explains(lacking, floor):
            self.report.overdrawn.append(Overdrawn(self._account, lacking))
        else:
            self.expect("free", "0 or more", -lacking)

    def _compare_holds(self, head: Head, contents: Contents, lines: LinePass) -> None:
        held = self._add_holds(contents)
        if held is not None:
            if head.balance is not None:
                self.expect("held", held.total, int(head.held or b"0"))
            for key_id, key in contents.keys.items():
                self.expect(f"key_held {key_id}", held.by_key.get(key_id, 0), int(key.held))
            for user, member in contents.members.items():
                self.expect(f"member_held {user}", held.by_user.get(user, 0), int(member.held))
        spent: dict[bytes, int] = {}
        for key in contents.keys.values():
            spent[key.user] = spent.get(key.user, 0) + int(key.spent)
        for user, member in contents.members.items():
            self.expect(f"member_spent {user}", spent[user.encode()], int(member.spent))
        if lines.sums_are_known:
            for key_id, key in contents.keys.items():
                self.expect(f"spent {key_id}", -lines.sums.by_key.get(key_id, 0), int(key.spent))
        without = contents.holds.keys() - contents.expiries.keys()
        orphans = contents.expiries.keys() - contents.holds.keys()
        if without or orphans:
            found = f"none for {_names(without)}" if without else f"one without a hold for {_names(orphans)}"
            self.expect("expiries", "one for each hold", found)
        for request_id, ends in contents.expiries.items():
            self._check_lease(head, request_id, ends)

    def _add_holds(self, contents: Contents) -> _Held | None:
        """The sums; None if a record is unreadable."""
        held, readable = _Held(), True
        for request_id, record in contents.holds.items():
            try:
                _, amount, _, _, _, flags, key_id, _ = record.split(b" ", 7)
                name, nano = key_id.decode(), int(amount)
            except ValueError:
                self.expect(f"hold {request_id.decode(errors='replace')}", "a hold", "unreadable")
                readable = False
                continue
            held.total += nano
            if b"b" in flags:
                held.by_key[name] = held.by_key.get(name, 0) + nano
            if b"u" in flags and (key := contents.keys.get(name)) is not None:
                user = key.user.decode()
                held.by_user[user] = held.by_user.get(user, 0) + nano
        return held if readable else None

    async def _compare_keys(self, links: Links, head: Head, contents: Contents, key_ids: set[str]) -> None:
        for key_id in sorted(key_ids - contents.keys.keys()):
            self.expect(f"key {key_id}", "in the account's set", "missing from it")
        for key_id, key in contents.keys.items():
            if not key.state and await _was_created(links, key_id, key, key_ids):
                self.expect(f"key {key_id}", "a key", "none")
            self._check_lease(head, key.lease, key.lease_ends)

    def _check_lease(self, head: Head, request_id: bytes, ends: bytes | float) -> None:
        if float(ends) < 0:
            self.expect("leases", "a sorted set", "unreadable")
        if float(ends) > int(head.now) + LONGEST:
            name, seconds = request_id.decode(errors="replace"), (float(ends) - int(head.now)) / 1e6
            self.expect(f"lease {name}", "ends within an hour", f"ends in {seconds:.0f} s")


def _owners(lines: LinePass) -> set[str]:
    return {key_id for key_id, amount in lines.sums.by_key.items() if amount}


async def _was_created(links: Links, key_id: str, key: KeySums, key_ids: set[str]) -> bool:
    """Whether the key existed. A command that was killed while it created the key leaves only its name in the set."""
    name = f"ki:{key_id}"
    return key_id in key_ids or int(key.spent) != 0 or bool(await links.link(name).call("EXISTS", name))


def _names(request_ids: Collection[bytes]) -> str:
    shown = ", ".join(name.decode(errors="replace") for name in sorted(request_ids)[:SHOWN])
    return shown if len(request_ids) <= SHOWN else f"{shown} and {len(request_ids) - SHOWN} more"


def _checkpoint_faults(checkpoint: ArchiveCheckpoint, proof: ArchiveProof) -> list[tuple[str, object, object]]:
    """Pairs to compare, as (rule, the archives' value, the checkpoint's value)."""
    at = proof.at_checkpoint
    if not checkpoint.n:
        return []
    if at is None or proof.first != 1:
        found = f"lines {proof.first} to {proof.head.n}" if proof.lines else "none"
        return [("archive", f"lines 1 to {checkpoint.n}", found)]
    return [
        ("archive balance", at.balance, checkpoint.balance),
        ("archive hash", at.hash, checkpoint.hash),
        ("archive id", at.id, checkpoint.id),
        ("archive keys", sorted(at.by_key.items()), sorted(checkpoint.by_key.items())),
    ]
