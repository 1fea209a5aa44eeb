"""The ledger's own tests, word for word, on a trio of sentinels and on a six-node cluster.

Run by name: `pytest tests/chaos/chaos_ledger_on_topologies.py`. The tests come from tests/ledger and from those of
accounts, keys and authentication; only the `world` they open is another.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial

import pytest

from tests.chaos.redis_topologies import sentinel_trio, six_nodes
from tests.ledger.test_admit import *  # noqa: F403
from tests.ledger.test_audit import *  # noqa: F403
from tests.ledger.test_journal import *  # noqa: F403
from tests.ledger.test_limits import *  # noqa: F403
from tests.ledger.test_running import *  # noqa: F403
from tests.ledger.test_settle import *  # noqa: F403
from tests.test_accounts import *  # noqa: F403
from tests.test_auth import *  # noqa: F403
from tests.test_keys import *  # noqa: F403
from tests.world import OpenWorld, open_world


@pytest.fixture(scope="module", params=[sentinel_trio, six_nodes], ids=["sentinel", "cluster"])
def topology_url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with ExitStack() as stack:
        yield stack.enter_context(request.param(tmp_path_factory.mktemp("topology"))).url


@pytest.fixture
def world(topology_url: str) -> OpenWorld:
    return partial(open_world, topology_url)
