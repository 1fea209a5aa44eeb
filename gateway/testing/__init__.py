"""For plugin authors: a conformance kit for providers, and a provider's server that can be scripted to misbehave.

::

    from gateway.testing import check_provider

    def test_conforms():
        check_provider(MyProvider, options={"delay": 0.0})

Sharp edge: `check_provider` runs an event loop of its own, so call it from a plain test function, not an async one.
"""

from gateway.testing.conformance import ask, check_provider, collect
from gateway.testing.fake_upstream import FakeUpstream, Reply, Seen

__all__ = ["FakeUpstream", "Reply", "Seen", "ask", "check_provider", "collect"]
