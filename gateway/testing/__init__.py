"""For plugin authors: a conformance kit for providers, a provider's server that can be scripted to misbehave, and a
running gateway.

::

    from gateway.testing import check_provider

    def test_conforms():
        check_provider(MyProvider, options={"delay": 0.0})

`check_hook` does the same for asynchronous hooks. Sharp edge: both run an event loop of their own, so call them from a
plain test function, not an async one.
"""

from gateway.testing.chat_cases import ask
from gateway.testing.conformance import check_provider, collect
from gateway.testing.fake_upstream import FakeUpstream, Reply, Seen, background_upstream
from gateway.testing.hook_cases import check_hook, checked_answer, checked_call, run_hook, whole_answer
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
    "check_hook",
    "check_provider",
    "checked_answer",
    "checked_call",
    "collect",
    "run_hook",
    "running_gateway",
    "whole_answer",
]
