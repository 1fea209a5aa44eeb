"""A gateway with accounts, keys and people, which goes back to any state that it was in."""

from __future__ import annotations

import hashlib
import re
from typing import Any

import aiohttp
import sqlalchemy as sa
from msgspec import Struct, structs
from sqlalchemy.engine import Connection

from gateway.database.people_tables import (
    admin_tokens,
    identities,
    invitations,
    memberships,
    sessions,
    sign_in_links,
    sign_ups,
    users,
)
from tests.admin_api.samples import Samples
from tests.batches.made import made_batch
from tests.console.client import ROOT, Browser, Console
from tests.sequences.facts import EVERYTHING, SITE, Attacker, Facts, Held

TABLES = (users, identities, memberships, sessions, invitations, sign_in_links, sign_ups, admin_tokens)
LEFT_OUT = (b"audit:", b"signin:")  # the trail, and counts of attempts: they go on
LINK = re.compile(r"/sign-in/link\?token=([\w-]+)")
INVITATION = re.compile(r"/invitation\?token=([\w-]+)")
KEY = re.compile(r"\bsk-[\w-]{20,}")
MAILBOX = "evil.test"  # whose messages the attacker reads
UNIT = 1_000_000_000
KEY_FIELDS = ("account", "user", "state", "rpm", "tpm", "budget", "models", "max_cost", "endpoints", "addresses")
ACCOUNT_FIELDS = (
    "group", "state", "balance", "floor", "rpm", "tpm", "concurrency", "monthly", "allowed", "denied", "prices",
)  # fmt: skip


class Snapshot(Struct, frozen=True):
    """Rows of people, and the keys of the store."""

    rows: dict[str, list[dict[str, Any]]]
    store: dict[bytes, bytes]

    def same(self, other: Snapshot) -> bool:
        """Whether nothing was changed between them, beside times of use."""
        return self.store == other.store and self._steady() == other._steady()

    def _steady(self) -> list[dict[str, Any]]:
        return [{**row, "last_used_at": 0, "last_seen_at": 0} for rows in self.rows.values() for row in rows]


class World:
    """The accounts acme and other; the people olga (owner), max (member), pia, vera (viewer) and rob (operator)."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.ids: dict[str, str] = {}
        self.own_token = ""  # the id of the attacker's
        self.requests = 0
        self._http: aiohttp.ClientSession | None = None

    async def fill(self) -> None:
        """Make accounts, keys and people."""
        c, store = self.console, self.console.services.store
        people = await c.services.people()
        await store.key_service.check_pepper()  # the first use notes it in the store
        people_of: tuple[tuple[str, dict[str, Any]], ...] = (
            ("olga", {"acme": "owner"}),
            ("max", {"acme": "member"}),
            ("pia", {}),
            ("vera", {"role": "viewer"}),
            ("rob", {"role": "operator"}),
        )
        for name, rights in people_of:
            self.ids[name] = (await c.user(f"{name}@example.com", **rights)).id
        for name, account, user in (
            ("key", "acme", ""),
            ("key_olga", "acme", "olga"),
            ("key_max", "acme", "max"),
            ("key_other", "other", ""),
        ):
            made = await store.keys.create(account, name=f"secret-{name}", user=self.ids[user] if user else "", rpm=5)
            self.ids[name] = made.id
        await store.account_admin.credit(ROOT, "acme", 5 * UNIT, note="secret-note")
        await store.money.limit(ROOT, "acme", rpm=50, monthly=70 * UNIT)
        await store.account_admin.deny(ROOT, "acme", ["tiny"])
        await store.account_admin.disable(ROOT, "other")
        invited = await people.invitations.to_account(ROOT, "ines@example.com", "acme", "member")
        self.ids["invitation"] = invited.invitation.id
        self.ids["token"] = (await people.tokens.create(ROOT, "secret-token", ["read"])).record.id
        self.ids["charge"] = await Samples(c).charge("acme")  # type: ignore[arg-type]  # it has services and workers
        self.ids["batch"] = (await made_batch(c.services.store.store, "acme")).id
        self.ids["call"] = c.workers.start("req_running", "acme")

    async def token(self, *scopes: str, account: str = "") -> tuple[Attacker, str]:
        """A token with these scopes, and its text."""
        people = await self.console.services.people()
        new = await people.tokens.create(ROOT, "attacker", scopes, account=account or None)
        self.own_token = new.record.id
        name = f"token {'+'.join(scopes)}{' of ' + account if account else ''}"
        return Attacker(name=name, rights={account or SITE: frozenset(scopes)}), new.text

    async def person(self, name: str) -> tuple[Attacker, Browser, str]:
        """A person in a browser, with the XSRF token of its forms."""
        people = await self.console.services.people()
        user = await people.users.show(ROOT, self.ids[name])
        browser = await self.console.signed_in(user)
        owned = {account: EVERYTHING for account, role in user.accounts.items() if role == "owner"}
        rights = {account: frozenset({"read", "accounts", "keys", "users"}) for account in owned}
        if user.role == "viewer":
            rights[SITE] = frozenset({"read"})
        return Attacker(name=name, rights=rights, user=user.id), browser, await browser.token()

    async def save(self) -> Snapshot:
        """This state."""
        client = self.console.services.store.store.client
        names = sorted([name async for name in client.scan_iter(count=1000) if not name.startswith(LEFT_OUT)])
        pipeline = client.pipeline(transaction=False)
        for name in names:
            pipeline.dump(name)
        texts = await pipeline.execute()
        database = await self.console.services.database()
        with database.reading() as connection:
            rows = {table.name: _rows(connection, table) for table in TABLES}
        return Snapshot(rows, dict(zip(names, texts, strict=True)))

    async def restore(self, snapshot: Snapshot) -> None:
        """Go back to a state. The audit trail goes on."""
        client = self.console.services.store.store.client
        pipeline = client.pipeline(transaction=False)
        pipeline.flushall()
        for name, text in snapshot.store.items():
            pipeline.restore(name, 0, text)
        await pipeline.execute()
        database = await self.console.services.database()
        with database.writing() as connection:
            for table in reversed(TABLES):
                connection.execute(table.delete())
            for table in TABLES:
                if snapshot.rows[table.name]:
                    connection.execute(table.insert(), snapshot.rows[table.name])
        if "req_running" not in self.console.workers.calls:
            self.console.workers.start("req_running", "acme")

    async def facts(self, snapshot: Snapshot, held: Held) -> Facts:
        """What is stored now, of which `snapshot` was taken."""
        store, rows = self.console.services.store, snapshot.rows
        accounts = {one.name: {f: getattr(one, f) for f in ACCOUNT_FIELDS} for one in await store.accounts.list()}
        keys = {one.id: {f: getattr(one, f) for f in KEY_FIELDS} for one in await store.keys.list(None)}
        people = {
            row["id"]: {
                "email": row["email"],
                "role": row["role"],
                "state": row["disabled_at"] is None,
                "second_factor": row["totp_secret"] is not None,
                "accounts": {m["account"]: m["role"] for m in rows["memberships"] if m["user_id"] == row["id"]},
            }
            for row in rows["users"]
        }
        open_ = {row["id"]: row for row in rows["invitations"] if row["used_at"] is None}
        invited = {_hash(token) for token in held.invitations}
        links = {_hash(token) for token in held.links}
        entries = {row["user_id"] for row in rows["sign_in_links"] if row["token_hash"] in links} | held.mailboxes
        tokens = {
            row["id"]: {"revoked": row["revoked_at"] is not None, "own": row["id"] == self.own_token}
            for row in rows["admin_tokens"]
        }
        return Facts(
            accounts,
            keys,
            people,
            {id_: {name: row[name] for name in ("account", "role", "site_role")} for id_, row in open_.items()},
            tokens,
            frozenset(id_ for id_ in entries if id_ in people and people[id_]["state"]),
            frozenset(id_ for id_, row in open_.items() if row["token_hash"] in invited),
        )


def learned(held: Held, text: str, after: Snapshot, keys: set[str]) -> Held:
    """What the attacker holds after an answer; `keys` are the ids of the keys that are new."""
    mailboxes = {row["id"] for row in after.rows["users"] if row["email"].endswith(MAILBOX)}
    return structs.replace(
        held,
        links=held.links | set(LINK.findall(text)),
        invitations=held.invitations | set(INVITATION.findall(text)),
        keys=held.keys | (keys if KEY.search(text) else set()),
        mailboxes=frozenset(mailboxes),
    )


def _rows(connection: Connection, table: sa.Table) -> list[dict[str, Any]]:
    found = connection.execute(sa.select(table).order_by(*table.primary_key))
    return [dict(row._mapping) for row in found]


def _hash(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()
