"""The `route` hooks of a model: they order the candidates of a call, and may leave some out, but add none.

They run when the money is held, which covers every candidate. A hook that fails leaves the order as it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from operator import methodcaller
from typing import Any

from gateway.errors import GatewayError
from gateway.hooks.runner import PASSED, REPLACED, HookFailed
from gateway.inference.call import Call
from gateway.inference.services import Services
from gateway.plugins.hook import RouteOption
from gateway.routing.request_adaptation import Adapted


async def order(call: Call, services: Services) -> None:
    """Set the order of the candidates; raises the error of a refusal."""
    hooked = call.hooked
    assert hooked is not None
    for runner in services.call_hooks.of("route", call.model.hooks):
        if len(call.adapted) < 2:
            return
        seen, options = hooked.view(), list(map(_option, range(len(call.adapted)), call.adapted))
        try:
            call.adapted, outcome = await runner.run(
                "route",
                methodcaller("route", seen, options),
                partial(_ordered, call.adapted),
                account=call.key.account,
                digest=hash(call.request_id),
            )
        except HookFailed as failure:
            hooked.note(runner, failure.outcome)
        except GatewayError:
            hooked.refused(runner)
            raise
        else:
            hooked.note(runner, outcome)


def _option(position: int, adapted: Adapted[Any]) -> RouteOption:
    candidate = adapted.candidate
    target, circuit = candidate.target, candidate.circuit
    return RouteOption(
        position, target.provider, target.model, candidate.model.name, circuit.latency, circuit.in_flight
    )


def _ordered(adapted: Sequence[Adapted[Any]], found: Any) -> tuple[Sequence[Adapted[Any]], str]:
    """The candidates in the order that a hook returned; ValueError for anything but some of them, each once."""
    if not isinstance(found, (list, tuple)) or not all(isinstance(one, RouteOption) for one in found):
        raise ValueError("an order is a list of the options")
    places = [one.position for one in found]
    if len(set(places)) < len(places) or not set(places) <= set(range(len(adapted))):
        raise ValueError("an option is not one of the call, or is there twice")
    if not places or places == list(range(len(adapted))):
        return adapted, PASSED
    return [adapted[place] for place in places], REPLACED
