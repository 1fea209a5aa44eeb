"""Walks of a token or a person through the requests, from a new world."""

from __future__ import annotations

from typing import Any

import aiohttp

from tests.sequences.steps import PersonSender, TokenSender, api_steps, page_steps
from tests.sequences.walker import Walk, Walked
from tests.sequences.world import World


async def walk_of_token(console: Any, *scopes: str, account: str = "", length: int, only: str = "") -> Walked:
    """The walk of a token over the routes whose operations begin with `only`."""
    async with console() as c, aiohttp.ClientSession() as session:
        world = World(c)
        await world.fill()
        attacker, text = await world.token(*scopes, account=account)
        steps = [step for step in api_steps() if step.route.operation_id.startswith(only)]
        return await Walk(world, attacker, TokenSender(session, c.url, text), steps).run(length)


async def walk_of_person(console: Any, name: str, *, length: int) -> Walked:
    """The walk of a person over the pages."""
    async with console() as c:
        world = World(c)
        await world.fill()
        attacker, browser, xsrf = await world.person(name)
        return await Walk(world, attacker, PersonSender(browser, xsrf), page_steps()).run(length)
