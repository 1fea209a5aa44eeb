"""What `explain` says is what an admission then does, and saying it leaves no trace."""

import asyncio
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gateway import errors
from gateway.admin.account_limits import AccountLimits
from gateway.ledger import GroupLimits
from gateway.ledger import admission as codes
from gateway.ledger.admission import call_arguments, group_arguments
from gateway.ledger.api_key import ApiKey
from tests.ledger.records import settle

ERRORS = {  # in the order of the rules
    codes.KEY: errors.InvalidApiKey,
    codes.ACCOUNT: errors.InsufficientPermissions,
    codes.MODEL: errors.ModelNotPermitted,
    codes.TOOBIG: errors.InvalidValue,
    codes.CONCURRENCY: errors.ConcurrencyLimited,
    codes.RPM: errors.RequestRateLimited,
    codes.TPM: errors.TokenRateLimited,
    codes.COSTLY: errors.CostLimitExceeded,
    codes.BUDGET: errors.BudgetExceeded,
    codes.SPENT: errors.SpendLimitExceeded,
    codes.FUNDS: errors.BalanceExhausted,
}
# Small, so that no bucket gains a unit within a second and turns a refusal into an admission between the two asks.
LIMIT = st.none() | st.integers(1, 4)
STATES = st.fixed_dictionaries(
    {
        "group": st.builds(GroupLimits, rpm=LIMIT, tpm=st.none() | st.integers(3, 9), concurrency=LIMIT),
        "key": st.fixed_dictionaries(
            {},
            optional={
                "rpm": st.integers(1, 4),
                "tpm": st.integers(3, 9),
                "concurrency": st.integers(1, 3),
                "budget": st.integers(1, 60),
                "max_cost": st.integers(5, 40),
                "models": st.lists(st.sampled_from("mn"), min_size=1),
            },
        ),
        "every": st.sampled_from(["never", "month", "week", "day"]),
        "balance": st.integers(0, 80),
        "limits": st.one_of(
            st.just({}),
            st.fixed_dictionaries({"monthly": st.integers(0, 30)}),
            st.fixed_dictionaries(
                {"floor": st.integers(-40, 0)},
                optional={"rpm": st.integers(1, 4), "tpm": st.integers(3, 9), "concurrency": st.integers(1, 3)},
            ),
        ),
        "calls": st.lists(st.tuples(st.integers(0, 20), st.integers(0, 3), st.sampled_from("rhse")), max_size=6),
        "rule": st.sampled_from(["", "+", "-"]),
        "trouble": st.sampled_from(["", "", "", "revoked", "expired", "disabled"]),
        "open_to": st.sampled_from([frozenset({"default"}), frozenset({"gold"})]),
        "hold": st.integers(0, 40),
        "tokens": st.integers(0, 11),
    }
)


async def bring_about(world, state: dict[str, Any]) -> ApiKey:
    key = await world.caller(balance=state["balance"], **state["key"])
    if "budget" in state["key"]:
        await world.edit_key(key.id, every=state["every"])
    await world.accounts.allow("acme", ["m"])
    await AccountLimits(world.store, world.accounts).change("acme", **state["limits"])
    for amount, tokens, fate in state["calls"]:
        try:
            hold = await world.admit(key, amount, tokens, model="m")
        except errors.GatewayError:
            continue
        if fate == "s":
            await settle(world.ledger, hold, amount // 2, tokens=tokens)
        elif fate == "e":
            hold.used = amount // 3
            await world.ledger.renew_leases([hold])
            await world.expire(hold)
    client = world.store.client
    await (client.hset("{a:acme}", "m:m", state["rule"]) if state["rule"] else client.hdel("{a:acme}", "m:m"))
    match state["trouble"]:
        case "revoked":
            await world.keys.revoke(key.id)
        case "expired":
            await client.hset(f"{{a:acme}}:k:{key.id}", "exp", 1)
        case "disabled":
            await world.accounts.disable("acme")
    return key


async def compare(world, state: dict[str, Any]) -> int:
    """The code of the first refusal, or 0, on which both agree."""
    async with world(default=state["group"]) as w:
        key = await bring_about(w, state)
        ask = w.ask(key, state["hold"], state["tokens"], groups=state["open_to"])
        before = await w.dump()
        verdict = await w.ledger.explain(*ask)
        after = await w.dump()
        assert after.items() <= before.items()  # an empty bucket may have expired, but nothing is new or changed
        found = [refusal.code for refusal in verdict.refusals]
        assert found == [code for code in ERRORS if code in found]
        try:
            await w.ledger.admit(*ask)
        except errors.GatewayError as error:
            assert found and type(error) is ERRORS[found[0]]
            if found[0] in (codes.RPM, codes.TPM):
                assert abs(error.retry_after - verdict.refusals[0].wait) < 1.0
        else:
            assert found == []
        await w.proved()
        return found[0] if found else 0


@pytest.mark.slow
def test_explanation_agrees_with_the_admission_that_follows(world):
    seen: set[int] = set()

    @settings(max_examples=300, deadline=None, database=None, suppress_health_check=list(HealthCheck), derandomize=True)
    @given(STATES)
    def agree(state: dict[str, Any]) -> None:
        seen.add(asyncio.run(compare(world, state)))

    agree()
    assert seen == {0, *ERRORS}  # every rule had its turn


@pytest.mark.parametrize(("hold", "code"), [(700, 0), (701, codes.FUNDS)])
async def test_money_of_an_expired_hold_counts_as_admission_would_count_it(world, hold, code):
    async with world() as w:
        key = await w.caller(balance=1000)
        lost = await w.admit(key, 900)
        lost.used = 300
        await w.ledger.renew_leases([lost])
        await w.expire(lost)
        ask = w.ask(key, hold)
        verdict = await w.ledger.explain(*ask)
        assert [refusal.code for refusal in verdict.refusals] == ([code] if code else [])
        if code:
            with pytest.raises(ERRORS[code]):
                await w.ledger.admit(*ask)
        else:
            await w.ledger.admit(*ask)
        assert verdict.facts["account.balance"] == "700"


async def test_explain_script_runs_in_read_only_mode(world):
    async with world() as w:
        key = await w.caller(balance=1000)
        hold = await w.admit(key, 900)
        await w.expire(hold)
        source = w.ledger._scripts.explain.source
        args = [*group_arguments("default", GroupLimits(), ""), *call_arguments("default", *w.ask(key, 950))]
        _, refusals, _ = await w.store.client.execute_command("EVAL_RO", source, 1, "{a:acme}", *args)
        assert refusals == []  # the expired hold would be charged nothing and give its money back


async def test_every_refusing_rule_is_named_in_order(world):
    async with world(default=GroupLimits(rpm=1, tpm=5, concurrency=1)) as w:
        key = await w.caller(balance=100, budget=60)
        await w.admit(key, 50, 5)
        await w.accounts.deny("acme", ["m"])
        await w.accounts.disable("acme")
        await w.keys.revoke(key.id)
        await w.store.client.hset(f"{{a:acme}}:k:{key.id}", "exp", 1)
        verdict = await w.ledger.explain(*w.ask(key, 70, 6))
        assert [refusal.code for refusal in verdict.refusals] == [
            codes.KEY,
            codes.KEY,
            codes.ACCOUNT,
            codes.MODEL,
            codes.TOOBIG,
            codes.CONCURRENCY,
            codes.RPM,
            codes.TPM,
            codes.BUDGET,
            codes.FUNDS,
        ]
        assert verdict.facts["account.running"] == "1"


async def test_account_that_changed_its_group_has_the_rules_of_the_new_one(world):
    async with world(gold=GroupLimits(tpm=5)) as w:
        key = await w.caller(group="gold")
        verdict = await w.ledger.explain(*w.ask(key, tokens=6, groups=frozenset({"gold"})))
        assert verdict.group == "gold"
        assert [refusal.code for refusal in verdict.refusals] == [codes.TOOBIG, codes.TPM]


async def test_explaining_for_an_account_that_the_store_has_lost_is_unavailable(world):
    async with world() as w:
        with pytest.raises(errors.StoreUnavailable):
            await w.ledger.explain(*w.ask(ApiKey("nobody", "key_x")))
