"""A `FakeUpstream` on a thread of its own, for plain tests beside a gateway that runs as another process.

::

    with background_upstream(vendor) as url:
        ...                                    # point a provider's base_url at url

Sharp edge: `answer` runs in that thread.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from gateway.testing.fake_upstream import FakeUpstream, Reply, Seen


@contextmanager
def background_upstream(answer: Callable[[Seen], Reply] | None = None) -> Iterator[str]:
    """Serve until the context ends; its address, without a path."""
    upstream = FakeUpstream(answer)
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="upstream", daemon=True)
    thread.start()
    try:
        asyncio.run_coroutine_threadsafe(upstream.start(), loop).result(10)
        yield upstream.url
    finally:
        asyncio.run_coroutine_threadsafe(upstream.close(), loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
