"""The five hooks of plugins: synchronous, called at start-up or once per call, never per chunk.

`call_settled` and `shutdown` are called in a thread of the plugin, so that one that blocks delays only itself.

A plugin implements the hooks it needs and names its module under the entry-point group `gateway`::

    from gateway import hookimpl

    @hookimpl
    def register_providers(register):
        register(MyProvider)

Plugins run with the full rights of the gateway's process: install only code that you trust.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pluggy

if TYPE_CHECKING:
    from collections.abc import Callable

    from gateway.billing.call_record import CallRecord
    from gateway.plugins.hook import Hook
    from gateway.plugins.host import Gateway
    from gateway.plugins.provider import Provider

hookspec = pluggy.HookspecMarker("gateway")
hookimpl = pluggy.HookimplMarker("gateway")


@hookspec
def register_providers(register: Callable[[type[Provider]], None]) -> None:
    """Call `register(MyProvider)` for every provider class this plugin brings."""


@hookspec
def register_hooks(register: Callable[[type[Hook]], None]) -> None:
    """Call `register(MyHook)` for every class of asynchronous hooks this plugin brings."""


@hookspec
def startup(gateway: Gateway) -> None:
    """Called when the gateway is built and its port is not open yet; raise to refuse the start."""


@hookspec
def shutdown(gateway: Gateway) -> None:
    """Called in the plugin's thread after the last request has ended, and after its records; has two seconds."""


@hookspec
def call_settled(record: CallRecord) -> None:
    """Called in the plugin's thread after a call was settled; `record` has its usage and cost.

    It may block. Up to 1,000 records wait for it; later ones are lost.
    """
