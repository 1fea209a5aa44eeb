"""For plugin authors: a conformance kit for providers, a provider's server that can be scripted to misbehave, and a
running gateway.

::

    from gateway.testing import check_provider

    def test_conforms():
        check_provider(MyProvider, options={"delay": 0.0})

Sharp edge: `check_provider` runs an event loop of its own, so call it from a plain test function, not an async one.
"""

from gateway.testing.chat_cases import ask
from gateway.testing.conformance import check_provider, collect
from gateway.testing.fake_upstream import FakeUpstream, Reply, Seen, background_upstream
from gateway.testing.running import RunningGateway, running_gateway
from gateway.testing.subject import CheckReport

__all__ = [
    "CheckReport",
    "FakeUpstream",
    "Reply",
    "RunningGateway",
    "Seen",
    "ask",
    "background_upstream",
    "check_provider",
    "collect",
    "running_gateway",
]
