"""The whole extension surface: four hooks, synchronous, called at start-up or once per call, never per chunk.

A plugin implements the ones it needs and names its module under the entry-point group `gateway`::

    from gateway import hookimpl

    @hookimpl
    def register_providers(register):
        register(MyProvider)

Plugins run with the full rights of the gateway's process: install only what you would run yourself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pluggy

if TYPE_CHECKING:
    from collections.abc import Callable

    from gateway.billing.call_record import CallRecord
    from gateway.plugins.host import Gateway
    from gateway.plugins.provider import Provider

hookspec = pluggy.HookspecMarker("gateway")
hookimpl = pluggy.HookimplMarker("gateway")


@hookspec
def register_providers(register: Callable[[type[Provider]], None]) -> None:
    """Call `register(MyProvider)` for every provider class this plugin brings."""


@hookspec
def startup(gateway: Gateway) -> None:
    """The gateway is built and its port not yet open; raise to refuse to start."""


@hookspec
def shutdown(gateway: Gateway) -> None:
    """The last request has drained."""


@hookspec
def call_settled(record: CallRecord) -> None:
    """A call has ended and was charged: what it used and what it cost. Must not block."""
