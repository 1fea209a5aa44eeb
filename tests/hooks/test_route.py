"""`route`: a hook orders the candidates of a call, and adds none."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from msgspec import structs

from gateway import CheckedCall, RouteOption, errors
from gateway.accounts.accounts import Accounts
from gateway.amounts import NANO
from gateway.runtime.gateway import Gateway
from gateway.testing import FakeUpstream
from tests.api.conftest import settled

from .conftest import Client, Scripted, counted


async def backwards(call: CheckedCall, options: Sequence[RouteOption]) -> Any:
    return options[::-1]


def models(upstream: FakeUpstream) -> list[str]:
    return [seen.json["model"] for seen in upstream.seen]


async def test_the_first_option_of_a_hook_serves(
    client: Client, gateway: Gateway, scripted: type[Scripted], upstream: FakeUpstream
) -> None:
    assert (await client.chat(model="two"))[0].status == 200
    scripted.on_route = backwards
    assert (await client.chat(model="two"))[0].status == 200
    assert models(upstream) == ["first", "second"]
    counts = counted(gateway)
    assert (counts["check", "route", "passed"], counts["check", "route", "replaced"]) == (1.0, 1.0)


async def test_a_hook_sees_the_options_of_the_call(client: Client, scripted: type[Scripted]) -> None:
    seen: list[RouteOption] = []

    async def note(call: CheckedCall, options: Sequence[RouteOption]) -> Any:
        assert call.texts() and call.model == "two"
        seen.extend(options)
        return options

    scripted.on_route = note
    await client.chat(model="two")
    assert [(one.position, one.provider, one.model, one.public_model) for one in seen] == [
        (0, "up", "first", "two"), (1, "up", "second", "two"),
    ]  # fmt: skip


async def test_a_hook_is_not_asked_about_one_option(client: Client, scripted: type[Scripted]) -> None:
    async def never(call: CheckedCall, options: Sequence[RouteOption]) -> Any:
        raise AssertionError

    scripted.on_route = never
    assert (await client.chat(model="m"))[0].status == 200


async def _raises(call: CheckedCall, options: Sequence[RouteOption]) -> Any:
    raise RuntimeError


async def _twice(call: CheckedCall, options: Sequence[RouteOption]) -> Any:
    return [options[1], options[1]]


async def _adds(call: CheckedCall, options: Sequence[RouteOption]) -> Any:
    return [structs.replace(options[0], position=7)]


async def _none(call: CheckedCall, options: Sequence[RouteOption]) -> Any:
    return None


@pytest.mark.parametrize("do", [_raises, _twice, _adds, _none])
async def test_the_gateways_own_order_holds_if_the_hook_fails(
    client: Client, scripted: type[Scripted], upstream: FakeUpstream, do: Any
) -> None:
    scripted.on_route = do
    assert (await client.chat(model="two"))[0].status == 200
    assert models(upstream) == ["first"]


async def test_a_call_that_is_refused_at_its_route_costs_nothing(
    client: Client, scripted: type[Scripted], upstream: FakeUpstream, accounts: Accounts
) -> None:
    async def refuse(call: CheckedCall, options: Sequence[RouteOption]) -> Any:
        raise errors.InvalidValue("No place for this")

    scripted.on_route = refuse
    assert (await client.chat(model="two"))[0].status == 400
    assert upstream.seen == [] and (await settled(accounts)).balance == 10 * NANO
