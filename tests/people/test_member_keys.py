"""Keys of users: only members have them, and they end with the membership; budgets over all keys of a member."""

from datetime import timedelta

import pytest

from gateway.accounts.authenticator import Authenticator
from gateway.accounts.key_edits import KeyEdits
from gateway.admin.actor import AccountRole, Actor
from gateway.database.tables import LABELS, MEASURES, usage_daily
from gateway.errors import Forbidden, InvalidApiKey, InvalidValue, MemberBudgetExceeded, NotFound
from tests.admin.services import ROOT, Services
from tests.ledger.records import settle


async def member(
    s: Services, email: str = "ann@example.com", account: str = "acme", role: AccountRole = "member"
) -> Actor:
    user = await s.user(email)
    return (await s.people.memberships.set(ROOT, user.id, account, role)).actor("")


async def presented(s: Services, text: str):
    """The key as a worker knows it, which the store has confirmed."""
    auth = Authenticator(s.world.store, s.people.pepper)
    key = await auth.authenticate(text)
    await auth.confirm(key)
    return key


@pytest.mark.holds("people.md#keys-of-users-1")
async def test_only_a_member_has_a_key_and_the_store_knows_no_email(services) -> None:
    async with services() as s:
        stranger = await s.user("eve@example.com")
        ann = await member(s)
        with pytest.raises(InvalidValue, match="no member"):
            await s.people.member_keys.create(ROOT, "acme", stranger.id)
        with pytest.raises(InvalidValue, match="no member"):
            await s.people.member_keys.create(ROOT, "acme", "usr_nobody")
        new = await s.people.member_keys.create(ROOT, "acme", ann.id, name="laptop", rpm=5)
        assert (await presented(s, new.text)).user == ann.id
        [key] = await s.people.member_keys.list(ROOT, ann.id)
        assert (key.id, key.user, key.name, key.rpm) == (new.id, ann.id, "laptop", 5)
        assert len(await s.world.keys.list("acme")) == 1
        assert "example.com" not in await s.world.text()


@pytest.mark.holds("people.md#keys-of-users-1")
async def test_member_makes_and_revokes_own_keys_only(services) -> None:
    async with services() as s:
        ann, bob = await member(s), await member(s, "bob@example.com")
        own = await s.people.member_keys.create(ann, "acme", ann.id)
        for wanted in (bob.id, ""):
            with pytest.raises(Forbidden):
                await s.people.member_keys.create(ann, "acme", wanted)
        with pytest.raises(Forbidden):
            await s.people.member_keys.create(ann, "other", ann.id)
        with pytest.raises(Forbidden):
            await s.people.member_keys.list(bob, ann.id)
        assert [key.id for key in await s.people.member_keys.list(ann, ann.id)] == [own.id]
        with pytest.raises(Forbidden):
            await s.people.member_budgets.change(ann, ann.id, "acme", budget=5)


@pytest.mark.holds("people.md#keys-of-users-3")
async def test_keys_are_revoked_when_their_user_leaves_the_account(services) -> None:
    async with services() as s:
        ann = await member(s)
        await s.people.memberships.set(ROOT, ann.id, "other", "member")
        here, there = [await s.people.member_keys.create(ROOT, name, ann.id) for name in ("acme", "other")]
        await s.people.memberships.remove(ROOT, ann.id, "acme")
        with pytest.raises(InvalidApiKey):
            await presented(s, here.text)
        await presented(s, there.text)
        await s.people.memberships.set(ROOT, ann.id, "acme", "member")
        with pytest.raises(InvalidApiKey):  # for good
            await presented(s, here.text)
        assert [event.action for event in await s.waiting_events()] == ["keys.create", "keys.create", "keys.revoke"]


@pytest.mark.holds("people.md#keys-of-users-4")
async def test_keys_of_a_disabled_user_rest_until_the_user_is_enabled(services) -> None:
    async with services() as s:
        ann = await member(s)
        new, revoked = [await s.people.member_keys.create(ROOT, "acme", ann.id) for _ in range(2)]
        await s.world.keys.revoke(revoked.id)
        await s.people.users.disable(ROOT, ann.id)
        with pytest.raises(InvalidApiKey):
            await presented(s, new.text)
        with pytest.raises(InvalidValue, match="disabled"):
            await s.people.member_keys.create(ROOT, "acme", ann.id)
        await s.people.users.enable(ROOT, ann.id)
        await presented(s, new.text)
        with pytest.raises(InvalidApiKey):
            await presented(s, revoked.text)
        assert [event.action for event in await s.waiting_events()][-2:] == ["keys.disable", "keys.enable"]


@pytest.mark.holds("people.md#keys-of-users-5")
async def test_erased_user_leaves_no_valid_key_and_the_export_lists_keys(services) -> None:
    async with services() as s:
        ann = await member(s)
        new = await s.people.member_keys.create(ROOT, "acme", ann.id)
        sums = dict.fromkeys(MEASURES, 0) | {"calls": 3, "cost": 7}
        labels = dict.fromkeys(LABELS, "") | {"account": "acme", "key_id": new.id, "model": "m"}
        with s.database.writing() as connection:
            row = {**sums, **labels, "user_id": ann.id, "day": 86_400_000_000}
            connection.execute(usage_daily.insert().values(row))
        exported = await s.people.personal_data.export(ROOT, ann.id)
        assert [key["id"] for key in exported["keys"]] == [new.id]
        used = {"day": "1970-01-02", "account": "acme", "key": new.id, "model": "m", "calls": 3, "cost": "0.000000007"}
        assert exported["usage"] == [used]
        await s.people.personal_data.erase(ROOT, ann.id)
        with pytest.raises(InvalidApiKey):
            await presented(s, new.text)
        assert ann.id in await s.world.text()  # the id stays, and leads to nobody


@pytest.mark.holds("people.md#keys-of-users-3")
@pytest.mark.parametrize("leaves_first", [True, False])
async def test_key_that_is_created_while_the_user_leaves_is_revoked(services, monkeypatch, leaves_first) -> None:
    async with services() as s:
        ann = await member(s)
        create = s.world.keys.create

        async def slow_create(*args, **options):
            if leaves_first:
                await s.people.memberships.remove(ROOT, ann.id, "acme")
            key = await create(*args, **options)
            if not leaves_first:
                await s.people.memberships.remove(ROOT, ann.id, "acme")
            return key

        monkeypatch.setattr(s.people.member_keys._keys, "create", slow_create)
        with pytest.raises(InvalidValue, match="no member"):
            await s.people.member_keys.create(ROOT, "acme", ann.id)
        assert [key.state for key in await s.world.keys.list("acme")] == ["revoked"]


@pytest.mark.holds("people.md#budgets-of-members-1")
async def test_budget_counts_what_was_charged_before_it_and_is_shown(services) -> None:
    async with services() as s:
        ann, w = await member(s), s.world
        await w.accounts.credit("acme", 10_000)
        one, two = [
            await presented(s, (await s.people.member_keys.create(ROOT, "acme", ann.id)).text) for _ in range(2)
        ]
        await settle(w.ledger, await w.admit(one, 600), 600)
        budgets = s.people.member_budgets
        with pytest.raises(InvalidValue, match="a period needs a budget"):
            await budgets.change(ROOT, ann.id, "acme", every="day")
        shown = await budgets.change(ROOT, ann.id, "acme", budget=1000, every="month")
        assert (shown.budget, shown.every, shown.spent, shown.period_spent) == (1000, "month", 600, 600)
        with pytest.raises(MemberBudgetExceeded):
            await w.admit(two, 401)
        assert (await budgets.change(ROOT, ann.id, "acme", clear=["budget"])).json_form() == {
            "account": "acme",
            "user": ann.id,
            "budget": None,
            "every": None,
            "spent": "0.0000006",
            "period_spent": "0.0000006",
            "held": "0",
            "unreadable": False,
        }
        await w.admit(two, 5000)
        await w.proved()
        with pytest.raises(NotFound):
            await budgets.change(ROOT, ann.id, "other", budget=5)
        events = [event for event in await s.waiting_events() if event.action == "members.limit"]
        assert events[0].after == {"budget": "0.000001", "every": "month"}


@pytest.mark.parametrize("end", ["remove", "disable"])
async def test_key_that_is_rotated_while_its_user_leaves_is_revoked(services, monkeypatch, end) -> None:
    async with services() as s:
        ann = await member(s)
        old = await s.people.member_keys.create(ROOT, "acme", ann.id)
        store = s.people.keys.store

        async def slow_store(*args, **options):
            if end == "remove":
                await s.people.memberships.remove(ROOT, ann.id, "acme")
            else:
                await s.people.users.disable(ROOT, ann.id)
            return await store(*args, **options)

        monkeypatch.setattr(s.people.keys, "store", slow_store)
        with pytest.raises(InvalidValue):
            await KeyEdits(s.world.store, s.people.keys).rotate("acme", old.id, overlap=timedelta(hours=1))
        assert "active" not in [key.state for key in await s.world.keys.list("acme")]


@pytest.mark.holds("people.md#keys-of-users-1")
async def test_rotated_key_stays_the_users(services) -> None:
    async with services() as s:
        ann = await member(s)
        new = await s.people.member_keys.create(ROOT, "acme", ann.id)
        rotated = await KeyEdits(s.world.store, s.people.keys).rotate("acme", new.id, overlap=timedelta(hours=1))
        assert (await presented(s, rotated.new.text)).user == ann.id
        await s.people.memberships.remove(ROOT, ann.id, "acme")
        with pytest.raises(InvalidApiKey):
            await presented(s, rotated.new.text)
