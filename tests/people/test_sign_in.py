"""People sign in by password, link and code; attempts are limited, and sessions end when they should."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pyotp
import pytest
import sqlalchemy as sa
from argon2 import PasswordHasher

from gateway.accounts.pepper import Peppers
from gateway.database.people_tables import audit_events, sessions, sign_in_links, users
from gateway.errors import InvalidLink, InvalidValue, NotFound, NotSignedIn, SignInFailed, SignInLimited
from gateway.people.password_hashes import PasswordHashes
from gateway.people.second_factor import matching_step, use_code
from gateway.people.secret_box import SealedError, SecretBox
from gateway.people.sessions import IDLE, LIFETIME, MOST, MOST_STARTS, NewSession
from gateway.people.sign_in import Client, SecondStep
from gateway.people.sign_in_limits import PER_ADDRESS, PER_SUBJECT
from tests.admin.services import HOME, PASSWORD, ROOT, Services

NEW = "another good password"


def shift(s: Services, table: sa.Table, **micros: int) -> None:
    """Move times of all rows into the past."""
    with s.database.writing() as connection:
        connection.execute(table.update().values({name: table.c[name] - value for name, value in micros.items()}))


async def with_second_factor(s: Services) -> str:
    """Ann with a password and a second factor; the secret."""
    user = await s.user(password=PASSWORD)
    secret = s.people.second_factor.propose(user).secret
    await s.people.second_factor.enable(user.actor(""), secret, pyotp.TOTP(secret).now())
    return secret


def unused_code(secret: str) -> str:
    """Of the next step. Codes of the step before would be too old if a step ends during the test."""
    return pyotp.TOTP(secret).at(time.time() + 30)


async def test_password_opens_a_session_of_the_user(services) -> None:
    async with services() as s:
        user = await s.user(password=PASSWORD)
        session = await s.signed_in("ANN@example.com")
        signed_in = await s.people.sessions.authenticate(session.token, address="192.0.2.9")
        assert (signed_in.user, signed_in.actor.name) == (user, f"user:{user.id}")
        assert (signed_in.session.address, signed_in.session.user_agent) == (HOME.address, HOME.user_agent)
        assert signed_in.actor.address == "192.0.2.9"


@pytest.mark.holds("security.md#accounts-and-sessions-4")
async def test_tokens_and_passwords_are_stored_as_hashes(services) -> None:
    async with services() as s:
        await s.user(password=PASSWORD)
        session = await s.signed_in()
        link = await s.people.sign_in_links.create(ROOT, session.user.id)
        invitation = await s.people.invitations.to_account(ROOT, "bob@example.com", "acme", "member")
        token = await s.people.tokens.create(ROOT, "ci", ["read"])
        found = s.text()
        for secret in (PASSWORD, session.token, link.token, invitation.token, token.text):
            assert len(secret) > 20
            assert secret not in found + repr((session, link, invitation, token))
        assert "$argon2id$" in found


@pytest.mark.holds("people.md#signing-in-2")
async def test_unknown_and_wrong_and_disabled_get_the_same_answer(services) -> None:
    async with services() as s:
        await s.user(password=PASSWORD)
        await s.user("no-password@example.com")
        disabled = await s.user("disabled@example.com", password=PASSWORD)
        await s.people.users.disable(ROOT, disabled.id)
        answers = []
        for email, password in (
            ("ann@example.com", "wrong password"),
            ("nobody@example.com", PASSWORD),
            ("no-password@example.com", PASSWORD),
            ("disabled@example.com", PASSWORD),
            ("no address", PASSWORD),
            ("ann@example.com", "x" * 5000),
        ):
            with pytest.raises(SignInFailed) as caught:
                await s.people.sign_in.with_password(email, password, HOME)
            answers.append((caught.value.body(), caught.value.headers()))
        assert all(answer == answers[0] for answer in answers)


@pytest.mark.holds("people.md#signing-in-2")
async def test_argon2_runs_for_unknown_emails_too(services, monkeypatch: pytest.MonkeyPatch) -> None:
    checked: list[Any] = []
    verify = PasswordHasher.verify

    def watched(self: PasswordHasher, stored: str | bytes, password: str | bytes) -> Any:
        checked.append(stored)
        return verify(self, stored, password)

    async with services() as s:
        monkeypatch.setattr(PasswordHasher, "verify", watched)
        for email in ("nobody@example.com", "no address"):
            with pytest.raises(SignInFailed):
                await s.people.sign_in.with_password(email, PASSWORD, HOME)
        own = s.people.sign_in._hashes._hasher.hash(PASSWORD)
        assert [str(stored).split("$")[:4] for stored in checked] == [own.split("$")[:4]] * 2  # of the same cost


@pytest.mark.holds("people.md#signing-in-2")
async def test_attempts_are_limited_per_email_and_per_address(services) -> None:
    async with services() as s:
        await s.user(password=PASSWORD)

        async def fails(email: str, address: str) -> None:
            with pytest.raises(SignInFailed):
                await s.people.sign_in.with_password(email, "wrong password", Client(address))

        for n in range(PER_SUBJECT):
            await fails("ann@example.com", f"198.51.100.{n}")
        with pytest.raises(SignInLimited) as caught:
            await s.people.sign_in.with_password("Ann@Example.com", PASSWORD, HOME)
        assert 0 < (caught.value.retry_after or 0) <= 900
        for n in range(PER_ADDRESS):
            await fails(f"user{n}@example.com", "2001:db8::1")
        with pytest.raises(SignInLimited):
            await s.people.sign_in.with_password("bob@example.com", PASSWORD, Client("2001:db8::ffff:2"))
        await fails("bob@example.com", "2001:db8:1::1")


async def test_right_password_of_a_user_with_a_second_factor_does_not_count_for_the_address(services) -> None:
    async with services() as s:
        await with_second_factor(s)
        assert isinstance(await s.people.sign_in.with_password("ann@example.com", PASSWORD, HOME), SecondStep)
        for n in range(PER_ADDRESS):
            with pytest.raises(SignInFailed):
                await s.people.sign_in.with_password(f"user{n}@example.com", "wrong password", HOME)
        with pytest.raises(SignInLimited):
            await s.people.sign_in.with_password("bob@example.com", PASSWORD, HOME)


async def test_parallel_attempts_do_not_pass_the_limit(services) -> None:
    async with services() as s:
        await s.user(password=PASSWORD)
        attempts = (s.people.sign_in.with_password("ann@example.com", "wrong", HOME) for _ in range(30))
        ended = await asyncio.gather(*attempts, return_exceptions=True)
        assert sum(isinstance(one, SignInFailed) for one in ended) == PER_SUBJECT
        assert sum(isinstance(one, SignInLimited) for one in ended) == 30 - PER_SUBJECT


async def test_successful_sign_ins_are_not_limited(services) -> None:
    async with services() as s:
        await s.user(password=PASSWORD)
        sessions = [await s.signed_in() for _ in range(PER_SUBJECT + 2)]
        assert len({session.token for session in sessions}) == PER_SUBJECT + 2


async def test_store_has_no_emails_or_addresses_of_people(services) -> None:
    async with services() as s:
        with pytest.raises(SignInFailed):
            await s.people.sign_in.with_password("nobody@example.com", PASSWORD, HOME)
        found = await s.world.dump()
        assert sum(name.startswith(b"signin:") for name in found) == 2
        assert b"nobody" not in b"".join(found) and HOME.address.encode() not in b"".join(found)


async def test_counters_of_attempts_expire(services) -> None:
    async with services() as s:
        await s.user(password=PASSWORD)
        await s.signed_in()
        with pytest.raises(SignInFailed):
            await s.people.sign_in.with_password("nobody@example.com", PASSWORD, HOME)
        client = s.world.store.client
        names = [name async for name in client.scan_iter("signin:*")]
        assert names and all([0 < await client.ttl(name) <= 900 for name in names])


async def test_hash_of_an_older_cost_is_replaced_at_the_next_sign_in(services) -> None:
    async with services() as s:
        user = await s.user(password=PASSWORD)
        s.people.sign_in._hashes = stronger = PasswordHashes(PasswordHasher(time_cost=2, memory_cost=16, parallelism=1))
        await s.signed_in()
        stronger.close()
        with s.database.reading() as connection:
            stored = connection.scalar(sa.select(users.c.password_hash).where(users.c.id == user.id))
        assert "t=2" in str(stored)


async def test_link_signs_in_once(services) -> None:
    async with services() as s:
        user = await s.user()
        link = await s.people.sign_in_links.create(ROOT, user.id)
        assert link.url == f"https://gw.test/sign-in/link?token={link.token}"
        assert (await s.people.sign_in.owner_of_link(link.token)).id == user.id
        attempts = (s.people.sign_in.with_link(link.token, HOME) for _ in range(4))
        ended = await asyncio.gather(*attempts, return_exceptions=True)
        assert sum(isinstance(one, NewSession) for one in ended) == 1
        assert sum(isinstance(one, InvalidLink) for one in ended) == 3


async def test_new_link_ends_earlier_ones_and_links_expire(services) -> None:
    async with services() as s:
        user = await s.user()
        first = await s.people.sign_in_links.create(ROOT, user.id)
        second = await s.people.sign_in_links.create(ROOT, user.id)
        with pytest.raises(InvalidLink):
            await s.people.sign_in.with_link(first.token, HOME)
        shift(s, sign_in_links, expires_at=24 * 3600 * 1_000_000)
        with pytest.raises(InvalidLink):
            await s.people.sign_in.with_link(second.token, HOME)


async def test_link_of_a_disabled_user_does_not_work(services) -> None:
    async with services() as s:
        user = await s.user()
        link = await s.people.sign_in_links.create(ROOT, user.id)
        await s.people.users.disable(ROOT, user.id)
        with pytest.raises(InvalidLink):
            await s.people.sign_in.with_link(link.token, HOME)
        with pytest.raises(InvalidValue):
            await s.people.sign_in_links.create(ROOT, user.id)


@pytest.mark.holds("security.md#accounts-and-sessions-4")
async def test_password_change_ends_the_other_sessions(services) -> None:
    async with services() as s:
        await s.user(password=PASSWORD)
        other, own = await s.signed_in(), await s.signed_in()
        actor = (await s.people.sessions.authenticate(own.token)).actor
        with pytest.raises(SignInFailed):
            await s.people.sign_in.change_password(actor, "wrong", NEW, session_id=own.session.id)
        for bad in ("short", "x" * 257, "ann@example.com"):
            with pytest.raises(InvalidValue):
                await s.people.sign_in.change_password(actor, PASSWORD, bad, session_id=own.session.id)
        await s.people.sign_in.change_password(actor, PASSWORD, NEW, session_id=own.session.id)
        with pytest.raises(NotSignedIn):
            await s.people.sessions.authenticate(other.token)
        await s.people.sessions.authenticate(own.token)
        await s.signed_in(password=NEW)
        with pytest.raises(SignInFailed):
            await s.signed_in(password=PASSWORD)


async def test_reset_by_link_sets_the_password_and_ends_all_sessions(services) -> None:
    async with services() as s:
        user = await s.user(password=PASSWORD)
        before = await s.signed_in()
        link = await s.people.sign_in_links.create(ROOT, user.id)
        with pytest.raises(InvalidValue):
            await s.people.sign_in.reset_password(link.token, "short", HOME)
        assert isinstance(await s.people.sign_in.reset_password(link.token, NEW, HOME), NewSession)
        with pytest.raises(NotSignedIn):
            await s.people.sessions.authenticate(before.token)
        with pytest.raises(InvalidLink):
            await s.people.sign_in.reset_password(link.token, PASSWORD, HOME)
        await s.signed_in(password=NEW)


async def test_second_factor_is_asked_for_and_each_code_works_once(services) -> None:
    async with services() as s:
        secret = await with_second_factor(s)
        step = await s.people.sign_in.with_password("ann@example.com", PASSWORD, HOME)
        assert isinstance(step, SecondStep)
        for code in ("", "12345", "abcdef", "٠١٢٣٤٥"):
            with pytest.raises(SignInFailed):
                await s.people.sign_in.with_code(step.token, code, HOME)
        code = unused_code(secret)
        session = await s.people.sign_in.with_code(step.token, code, HOME)
        assert (await s.people.sessions.authenticate(session.token)).user.has_second_factor
        again = await s.people.sign_in.with_password("ann@example.com", PASSWORD, HOME)
        assert isinstance(again, SecondStep)
        with pytest.raises(SignInFailed):
            await s.people.sign_in.with_code(again.token, code, HOME)
        with pytest.raises(InvalidLink):
            await s.people.sign_in.with_code(step.token, code, HOME)


async def test_link_of_a_user_with_a_second_factor_asks_for_the_code(services) -> None:
    async with services() as s:
        await with_second_factor(s)
        user = await s.people.users.find(ROOT, "ann@example.com")
        for use in (s.people.sign_in.with_link, lambda t, c: s.people.sign_in.reset_password(t, NEW, c)):
            link = await s.people.sign_in_links.create(ROOT, user.id)
            assert isinstance(await use(link.token, HOME), SecondStep)


async def test_codes_are_limited(services) -> None:
    async with services() as s:
        await with_second_factor(s)
        step = await s.people.sign_in.with_password("ann@example.com", PASSWORD, HOME)
        assert isinstance(step, SecondStep)
        for _ in range(PER_SUBJECT):
            with pytest.raises(SignInFailed):
                await s.people.sign_in.with_code(step.token, "abcdef", HOME)
        with pytest.raises(SignInLimited):
            await s.people.sign_in.with_code(step.token, "abcdef", HOME)


async def test_second_factor_needs_a_right_code_to_begin_and_to_end(services) -> None:
    async with services() as s:
        user = await s.user(password=PASSWORD)
        secret = s.people.second_factor.propose(user)
        assert secret.secret in secret.uri and secret.secret not in repr(secret)
        with pytest.raises(InvalidValue):
            await s.people.second_factor.enable(user.actor(""), secret.secret, "abcdef")
        code = pyotp.TOTP(secret.secret).now()
        assert (await s.people.second_factor.enable(user.actor(""), secret.secret, code)).has_second_factor
        with pytest.raises(SignInFailed):
            await s.people.second_factor.disable(user.actor(""), code)
        code = unused_code(secret.secret)
        assert not (await s.people.second_factor.disable(user.actor(""), code)).has_second_factor


async def test_operator_takes_the_second_factor_off(services) -> None:
    async with services() as s:
        await with_second_factor(s)
        user = await s.people.users.find(ROOT, "ann@example.com")
        assert not (await s.people.users.edit(ROOT, user.id, {"second_factor": False})).has_second_factor
        await s.signed_in()


def test_codes_of_the_neighbouring_steps_are_taken() -> None:
    secret, at = "JBSWY3DPEHPK3PXPJBSWY3DPEHPK3PXP", 1_000_000_015.0
    codes = [pyotp.TOTP(secret).at(int(at) + shift) for shift in (-60, -30, 0, 30, 60)]
    steps = [matching_step(secret, code, at=at) for code in codes]
    now = int(at) // 30
    assert steps == [None, now - 1, now, now + 1, None]
    assert matching_step("not base32!", "000000") is None


async def test_sessions_are_listed_and_ended_by_their_user(services) -> None:
    async with services() as s:
        await s.user(password=PASSWORD)
        await s.user("bob@example.com", password=PASSWORD)
        first, second, bobs = await s.signed_in(), await s.signed_in(), await s.signed_in("bob@example.com")
        actor = first.user.actor("")
        listed = await s.people.sessions.list(actor, actor.id)
        assert {one.id for one in listed} >= {first.session.id, second.session.id}
        await s.people.sessions.end(actor, second.session.id)
        with pytest.raises(NotSignedIn):
            await s.people.sessions.authenticate(second.token)
        for foreign in (bobs.session.id, "ses_none"):
            with pytest.raises(NotFound):
                await s.people.sessions.end(actor, foreign)
        await s.people.sessions.end_all(actor, actor.id, keep=first.session.id)
        assert [one.id for one in await s.people.sessions.list(actor, actor.id)] == [first.session.id]
        await s.people.sessions.authenticate(bobs.token)


@pytest.mark.holds("security.md#accounts-and-sessions-4")
@pytest.mark.parametrize("times", [{"last_seen_at": IDLE}, {"expires_at": LIFETIME}])
async def test_session_ends_after_its_lifetime_and_without_use(services, times: dict[str, int]) -> None:
    async with services() as s:
        await s.user(password=PASSWORD)
        session = await s.signed_in()
        shift(s, sessions, **times)
        with pytest.raises(NotSignedIn):
            await s.people.sessions.authenticate(session.token)


async def test_use_of_a_session_is_noted_once_a_minute(services) -> None:
    async with services() as s:
        await s.user(password=PASSWORD)
        session = await s.signed_in()
        shift(s, sessions, last_seen_at=50_000_000)
        seen = [(await s.people.sessions.authenticate(session.token)).session.last_seen for _ in range(2)]
        assert seen[0] == seen[1]
        shift(s, sessions, last_seen_at=50_000_000)
        seen += [(await s.people.sessions.authenticate(session.token)).session.last_seen for _ in range(2)]
        assert seen[3] > seen[2]


async def test_sessions_of_a_user_do_not_grow_without_bound(services) -> None:
    async with services() as s:
        user = await s.user(password=PASSWORD)
        tokens = []
        for _ in range(MOST + 3):
            link = await s.people.sign_in_links.create(ROOT, user.id)
            tokens.append((await s.people.sign_in.with_link(link.token, HOME)).token)
        assert len(await s.people.sessions.list(ROOT, user.id)) == MOST
        await s.people.sessions.authenticate(tokens[-1])
        with pytest.raises(NotSignedIn):
            await s.people.sessions.authenticate(tokens[0])


@pytest.mark.holds("people.md#signing-in-6", "security.md#shares-6")
async def test_person_begins_a_limited_number_of_sessions_in_some_minutes(services) -> None:
    async with services() as s:
        user = await s.user(password=PASSWORD)
        link = await s.people.sign_in_links.create(ROOT, user.id)
        begun = 0
        with pytest.raises(SignInLimited) as caught:
            for _ in range(2 * MOST_STARTS):
                session = await s.signed_in()
                await s.people.sessions.end(
                    (await s.people.sessions.authenticate(session.token)).actor, session.session.id
                )
                begun += 1
        assert begun == MOST_STARTS - 1  # one began with the first password
        assert 0 < (caught.value.retry_after or 0) <= 900
        assert (await s.actions()).count("sessions.start") == MOST_STARTS
        await s.user("bob@example.com", password=PASSWORD)
        await s.signed_in("bob@example.com")
        # A link works meanwhile: who knows the password keeps nobody from a new one.
        assert isinstance(await s.people.sign_in.reset_password(link.token, NEW, HOME), NewSession)
        shift(s, audit_events, at=16 * 60 * 1_000_000)
        await s.signed_in(password=NEW)


async def test_password_is_confirmed_before_dangerous_actions(services) -> None:
    async with services() as s:
        user = await s.user(password=PASSWORD)
        await s.people.sign_in.confirm_password(user.actor(""), PASSWORD)
        with pytest.raises(SignInFailed):
            await s.people.sign_in.confirm_password(user.actor(""), "wrong")
        without = await s.user("bob@example.com")
        with pytest.raises(SignInFailed):
            await s.people.sign_in.confirm_password(without.actor(""), "")


@pytest.mark.holds("operations/redis.md#the-stores-identity-7")
async def test_secret_of_a_second_factor_is_stored_encrypted_and_survives_a_rotation_of_the_pepper(
    services,
) -> None:
    async with services() as s:
        secret = await with_second_factor(s)
        user = await s.people.users.find(ROOT, "ann@example.com")
        assert secret not in s.text() and "'v1:" in s.text()
        old, new = s.people.pepper, b"another pepper of enough bytes"
        for stored, peppers in (
            (secret, Peppers(old)),  # of an older version
            (None, Peppers(new, old)),
            (None, Peppers(new)),
        ):
            shift(s, users, totp_step=2)
            if stored is not None:
                with s.database.writing() as connection:
                    connection.execute(users.update().values(totp_secret=stored))
            box = SecretBox(peppers)
            code = unused_code(secret)
            with s.database.writing() as connection:
                use_code(connection, box, user.id, code)
            assert box.open(_stored(s), user.id) == (secret, True)
        shift(s, users, totp_step=2)
        with s.database.writing() as connection, pytest.raises(SignInFailed):
            use_code(connection, SecretBox(Peppers(old)), user.id, unused_code(secret))
        with pytest.raises(SealedError):
            SecretBox(Peppers(new)).open(_stored(s), "usr_other")  # copied to another user


def _stored(s: Services) -> str:
    with s.database.reading() as connection:
        return str(connection.scalar(sa.select(users.c.totp_secret)))
