"""What the gateway has stored about accounts, keys and people, and what an attacker gained between two such states.

The rights of roles and scopes stand here once more, on purpose: a mistake in the gateway's tables is to be found.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from msgspec import Struct

EVERYTHING = ("read", "accounts", "keys", "credits", "users", "config")
SITE = "site"
#: What a role in an account allows there. A member has keys of their own, which `Attacker.user` says.
ROLES: Mapping[str, frozenset[str]] = {
    "none": frozenset(),
    "member": frozenset({"read", "keys"}),
    "owner": frozenset({"read", "accounts", "keys", "users"}),
}
SITE_ROLES: Mapping[str, tuple[str, ...]] = {"": (), "none": (), "viewer": ("read",), "operator": EVERYTHING}
PRICE = ("group", "prices", "floor")
DECIDED = ("state", "rpm", "tpm", "concurrency", "monthly", "allowed", "denied")
ENDED = ("revoked", "disabled")


class Attacker(Struct, frozen=True, kw_only=True):
    """A token, or a person; `rights` are scopes by account, or by `SITE` for all accounts and the site."""

    name: str
    rights: Mapping[str, frozenset[str]]
    user: str = ""  # the id of the person

    def may(self, scope: str, where: str) -> bool:
        """Whether the attacker has the scope there from the beginning."""
        return scope in self.rights.get(SITE, ()) or scope in self.rights.get(where, ())


class Held(Struct, frozen=True):
    """What the attacker has: tokens of links and invitations, keys whose text it saw, users by their mail."""

    links: frozenset[str] = frozenset()
    invitations: frozenset[str] = frozenset()
    keys: frozenset[str] = frozenset()
    mailboxes: frozenset[str] = frozenset()


class Facts(Struct, frozen=True):
    """What is stored, by name or id. `entries` are the users as whom the attacker can sign in."""

    accounts: dict[str, dict[str, Any]]
    keys: dict[str, dict[str, Any]]
    users: dict[str, dict[str, Any]]
    invitations: dict[str, dict[str, Any]]
    tokens: dict[str, dict[str, Any]]
    entries: frozenset[str]
    invited: frozenset[str]  # the invitations that the attacker can accept

    def is_over(self, attacker: Attacker) -> bool:
        """Whether the attacker has ended the own token, or removed themselves: every further request gets 401."""
        has_ended = any(fact["own"] and fact["revoked"] for fact in self.tokens.values())
        return has_ended or bool(attacker.user and attacker.user not in self.users)

    def digest(self, first: Facts, held: Held) -> str:
        """The same text for states in which the same requests have the same results: new objects have no names."""

        def people(ids: Iterable[str]) -> list[str]:
            known = [id_ for id_ in ids if id_ in self.users]
            return sorted({id_ if id_ in first.users else self._nameless("users", id_, first) for id_ in known})

        parts: list[Any] = [self._accounts(first)]
        for name in ("keys", "users", "invitations", "tokens"):
            mine, old = getattr(self, name), getattr(first, name)
            parts.append(sorted((id_, self._nameless(name, id_, first)) for id_ in mine if id_ in old))
            parts.append(sorted({self._nameless(name, id_, first) for id_ in mine if id_ not in old}))
        own = sorted({self._nameless("keys", id_, first) for id_ in held.keys if id_ in self.keys})
        parts += [people(self.entries), people(held.mailboxes), own]
        parts.append(sorted({self._nameless("invitations", id_, first) for id_ in self.invited}))
        return repr(parts)

    def _accounts(self, first: Facts) -> list[Any]:
        found = set()
        for name, fact in self.accounts.items():
            old, balance = first.accounts.get(name), fact["balance"]
            if old is not None:  # whether it rose or fell
                balance = (balance > old["balance"]) - (balance < old["balance"])
            found.add((name if old else "new", str({**fact, "balance": balance})))
        return sorted(found)

    def _nameless(self, what: str, id_: str, first: Facts) -> str:
        fact = dict(getattr(self, what)[id_])
        if what == "users":
            fact["email"] = id_ in first.users and fact["email"] == first.users[id_]["email"]
        if fact.get("user") and fact["user"] not in first.users:
            fact["user"] = "new"
        return str(fact)


def gains(attacker: Attacker, first: Facts, now: Facts, held: Held) -> list[str]:
    """What the attacker changed or can do without the scopes for it; empty if there is nothing."""
    found = [*_accounts(first, now), *_keys(attacker, first, now, held)]
    found += [*_people(attacker, first, now), *_ways_in(attacker, now)]
    found += [*_tokens(first, now)]
    return sorted({f"{what} ({scope} of {where})" for what, where, scope in found if not attacker.may(scope, where)})


Need = tuple[str, str, str]


def _all(what: str, where: str, *scopes: str) -> Iterator[Need]:
    return ((what, where, scope) for scope in scopes)


def _accounts(first: Facts, now: Facts) -> Iterator[Need]:
    for name, fact in now.accounts.items():
        old = first.accounts.get(name)
        if old is None:
            priced = fact["group"] != "default" or fact["balance"] or fact["prices"] or fact["floor"]
            yield from _all(f"opened {name}", SITE, "accounts", *(["credits"] if priced else []))
            continue
        for field in fact:
            if fact[field] == old[field]:
                continue
            if field in PRICE:
                yield from _all(f"changed the {field} of {name}", SITE, "accounts", "credits")
            elif field in DECIDED:
                yield from _all(f"changed the {field} of {name}", SITE, "accounts")
            else:
                yield from _all(f"changed the {field} of {name}", name, "credits")


def _keys(attacker: Attacker, first: Facts, now: Facts, held: Held) -> Iterator[Need]:
    for id_, fact in now.keys.items():
        account, old = fact["account"], first.keys.get(id_)
        if attacker.user and fact["user"] == attacker.user:
            continue
        if id_ in held.keys:
            yield from _all(f"has a key of {account}", account, "keys")
        if old is None:
            yield from _all(f"made a key of {account}", account, "keys")
        elif fact != old:
            ends = fact["state"] in ENDED and {**fact, "state": ""} == {**old, "state": ""}
            by_users = ends and fact["user"] and (attacker.may("users", SITE) or attacker.may("users", account))
            if not by_users:
                yield from _all(f"changed a key of {account}", account, "keys")


def _people(attacker: Attacker, first: Facts, now: Facts) -> Iterator[Need]:
    for id_ in first.users.keys() | now.users.keys():
        old, new, is_self = first.users.get(id_), now.users.get(id_), bool(attacker.user) and id_ == attacker.user
        before, after = (old or {}).get("accounts", {}), (new or {}).get("accounts", {})
        who = (new or old or {})["email"]
        if not is_self and any((old or {}).get(f) != (new or {}).get(f) for f in ("email", "state", "second_factor")):
            yield from _all(f"changed {who}", SITE, "users")
            if old is not None and old["role"] != "none":
                yield from _all(f"changed {who}", SITE, *EVERYTHING)
        if new is not None and new["role"] != (old or {"role": "none"})["role"]:
            yield from _all(f"changed the role of {who}", SITE, *EVERYTHING)
        for account in before.keys() | after.keys() if new is not None else ():
            was, is_now = ROLES[before.get(account, "none")], ROLES[after.get(account, "none")]
            if not is_now <= was:
                yield from _all(f"gave {who} a role in {account}", account, "users", *is_now)
            elif was != is_now and not is_self:
                yield from _all(f"took {who} a role in {account}", account, "users")


def _ways_in(attacker: Attacker, now: Facts) -> Iterator[Need]:
    for id_ in now.entries - {attacker.user}:
        user = now.users[id_]
        yield from _all(f"can sign in as {user['email']}", SITE, *SITE_ROLES[user["role"]])
        for account, role in user["accounts"].items():
            yield from _all(f"can sign in as {user['email']}", account, *ROLES[role])
    for id_ in now.invited:
        fact = now.invitations[id_]
        yield from _all("has an invitation", SITE, *SITE_ROLES[fact["site_role"]])
        yield from _all("has an invitation", fact["account"], *ROLES[fact["role"] or "none"])


def _tokens(first: Facts, now: Facts) -> Iterator[Need]:
    for id_, fact in now.tokens.items():
        if id_ not in first.tokens or (fact != first.tokens[id_] and not fact["own"]):
            yield from _all("made or ended a token", SITE, *EVERYTHING)
