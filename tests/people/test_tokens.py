"""Admin tokens: shown once, checked each time, restricted by scopes and account."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

import pytest

from gateway.accounts.pepper import Peppers
from gateway.admin.actor import EVERYTHING
from gateway.database.people_tables import admin_tokens
from gateway.errors import Forbidden, InvalidValue, NotFound, NotSignedIn
from gateway.log import redact
from gateway.people.random_ids import AdminTokenHash
from gateway.people.tokens import Tokens
from tests.admin.services import ROOT


async def test_token_acts_with_its_scopes_and_account(services) -> None:
    async with services() as s:
        new = await s.people.tokens.create(ROOT, "ci", ["keys", "read"], account="acme")
        assert re.fullmatch(r"gwa_[A-Za-z0-9_-]{43}", new.text)
        actor = await s.people.tokens.authenticate(new.text, address="192.0.2.1")
        assert (actor.name, actor.address) == (f"token:{new.record.id}", "192.0.2.1")
        assert actor.may("keys", "acme") and actor.may_read("users", "acme")
        assert not actor.may("keys", "other") and not actor.may("keys") and not actor.may("credits", "acme")
        assert not actor.is_operator


async def test_token_with_every_scope_is_as_powerful_as_an_operator(services) -> None:
    async with services() as s:
        new = await s.people.tokens.create(ROOT, "all", EVERYTHING)
        actor = await s.people.tokens.authenticate(new.text)
        assert actor.is_operator
        assert (await s.people.tokens.create(actor, "another", ["read"])).record.created_by == actor.name


async def test_revoked_expired_unknown_and_malformed_tokens_are_refused(services) -> None:
    async with services() as s:
        soon = datetime.now(UTC) + timedelta(hours=1)
        revoked, expired = [await s.people.tokens.create(ROOT, n, ["read"], expires=soon) for n in ("a", "b")]
        await s.people.tokens.authenticate(revoked.text)
        assert (await s.people.tokens.revoke(ROOT, revoked.record.id)).state == "revoked"
        assert (await s.people.tokens.revoke(ROOT, revoked.record.id)).state == "revoked"
        with s.database.writing() as connection:
            connection.execute(admin_tokens.update().values(expires_at=1))
        for text in (revoked.text, expired.text, "gwa_" + "x" * 43, "gwa_", "", "sk-" + "x" * 43, expired.text + "\n"):
            with pytest.raises(NotSignedIn):
                await s.people.tokens.authenticate(text)
        assert {token.state for token in await s.people.tokens.list(ROOT)} == {"revoked", "expired"}


async def test_token_of_another_pepper_is_not_known(services) -> None:
    async with services() as s:
        new = await s.people.tokens.create(ROOT, "ci", ["read"])
        other = Tokens(s.people.transactions, s.people.directory, Peppers(b"another pepper, 32 bytes long...."))
        with pytest.raises(NotSignedIn):
            await other.authenticate(new.text)
        assert AdminTokenHash(b"a" * 32)(new.text) != AdminTokenHash(b"b" * 32)(new.text)


@pytest.mark.holds("operations/redis.md#the-stores-identity-7")
async def test_token_survives_a_rotation_of_the_pepper_if_it_is_used_meanwhile(services) -> None:
    async with services() as s:
        used, unused, revoked = [await s.people.tokens.create(ROOT, name, ["read"]) for name in "abc"]
        await s.people.tokens.revoke(ROOT, revoked.record.id)
        old, new = s.people.pepper, b"another pepper, 32 bytes long...."

        def under(peppers: Peppers) -> Tokens:
            return Tokens(s.people.transactions, s.people.directory, peppers)

        actor = await under(Peppers(new, old)).authenticate(used.text)
        assert actor.name == f"token:{used.record.id}"
        with pytest.raises(NotSignedIn):
            await under(Peppers(new, old)).authenticate(revoked.text)
        assert (await under(Peppers(new)).authenticate(used.text)).name == actor.name
        for text in (unused.text, revoked.text):
            with pytest.raises(NotSignedIn):
                await under(Peppers(new)).authenticate(text)


@pytest.mark.parametrize(
    ("scopes", "account"), [([], None), (["keys", "everything"], None), (["config"], "acme"), (["read"], "nobody")]
)
async def test_impossible_token_is_refused(services, scopes: list[str], account: str | None) -> None:
    async with services() as s:
        with pytest.raises((InvalidValue, NotFound)):
            await s.people.tokens.create(ROOT, "ci", scopes, account=account)
        with pytest.raises(InvalidValue):
            await s.people.tokens.create(ROOT, " ", ["read"])
        with pytest.raises(InvalidValue):
            await s.people.tokens.create(ROOT, "ci", ["read"], expires=datetime(2020, 1, 1, tzinfo=UTC))
        assert await s.people.tokens.list(ROOT) == []


async def test_token_may_revoke_itself_only(services) -> None:
    async with services() as s:
        own, other = [await s.people.tokens.create(ROOT, name, ["read"]) for name in ("a", "b")]
        actor = await s.people.tokens.authenticate(own.text)
        with pytest.raises(Forbidden):
            await s.people.tokens.revoke(actor, other.record.id)
        assert (await s.people.tokens.revoke(actor, own.record.id)).state == "revoked"
        with pytest.raises(NotFound):
            await s.people.tokens.revoke(ROOT, "tok_none")


async def test_use_of_a_token_is_noted_once_a_minute(services) -> None:
    async with services() as s:
        new = await s.people.tokens.create(ROOT, "ci", ["read"])
        assert (await s.people.tokens.list(ROOT))[0].last_used is None
        used = []
        for _ in range(2):
            await s.people.tokens.authenticate(new.text)
            used.append((await s.people.tokens.list(ROOT))[0].last_used)
        assert used[0] is not None and used[0] == used[1]


def test_token_in_a_log_line_is_hidden() -> None:
    assert redact(f"it was gwa_{'x' * 43}, they said") == "it was gwa_***, they said"
