"""What a new gateway can be connected to: keys in the environment, and model servers on this machine.

Only names of variables are kept, never a key. Nothing is sent to a vendor; local servers are asked for their models.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from msgspec import Struct

from gateway.http_client.upstream import Upstream
from gateway.setup.known_providers import SERVERS, VENDORS, Model, Server
from gateway.setup.local_models import local_models


class FoundProvider(Struct, frozen=True):
    """A provider that can be used now."""

    name: str
    why: str  # for people
    options: dict[str, str]  # of the provider, without secrets
    models: dict[str, Model]
    port: int = 0  # of a local server


async def find_providers(
    environment: Mapping[str, str], *, servers: Sequence[Server] = SERVERS, host: str = "127.0.0.1"
) -> list[FoundProvider]:
    """Everything that is there; it takes at most six seconds. Two of one kind have the same name."""
    client = Upstream(keepalive=0.0)
    try:
        local = await asyncio.gather(*(_local(client, server, host) for server in servers))
    finally:
        await client.close()
    return [*_vendors(environment), *(found for found in local if found is not None)]


def _vendors(environment: Mapping[str, str]) -> list[FoundProvider]:
    found = []
    for vendor in VENDORS:
        variable = next((name for name in vendor.variables if environment.get(name, "").strip()), "")
        if variable:
            options = {**vendor.options, "api_key": f"env:{variable}"}
            why = f"{vendor.title}: the variable {variable} is set"
            found.append(FoundProvider(vendor.name, why, options, dict(vendor.models)))
    return found


async def _local(client: Upstream, server: Server, host: str) -> FoundProvider | None:
    there = await local_models(client, server, host)
    if there is None:
        return None
    title = next((known.title for known in SERVERS if known.name == there.kind), server.title)
    options = {"plugin": "openai", "preset": there.kind, "base_url": f"http://{host}:{server.port}/v1"}
    why = f"{title}: a server answers on port {server.port}"
    return FoundProvider(there.kind, why, options, there.models, port=server.port)
