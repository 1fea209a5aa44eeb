"""Runs schedules: time and chance are those of the world while one runs."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import hashlib
import logging
import os
import random
import shutil
import tempfile
import warnings
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from unittest import mock

from gateway.errors import GatewayError
from gateway.history import service, sweep
from gateway.inference import recent_failures
from gateway.ledger import archive_checkpoint, import_hints
from gateway.plugins.loader import Plugins
from gateway.routing.circuit_sync import CircuitSync
from gateway.runtime.overload import OverloadMonitor
from gateway.runtime.watchdog import Watchdog
from tests.simulation.clock_loop import Stuck
from tests.simulation.machines import plugins
from tests.simulation.places import disks_of_places
from tests.simulation.world import ENDS_WITHIN, Plan, Report, World


@contextlib.contextmanager
def _simulated(world: World) -> Iterator[None]:
    """Time and chance come from the world; nothing watches the real ones."""
    chance = random.Random(world.seed)
    state = random.getstate()
    random.seed(world.seed)
    trims = world.history is not None and world.history.trims
    with (
        _silence(),
        world.clock.everywhere(),
        disks_of_places(),
        mock.patch.object(os, "urandom", chance.randbytes),
        mock.patch.object(random, "_urandom", chance.randbytes),
        mock.patch.object(Watchdog, "start", lambda _: None),
        mock.patch.object(OverloadMonitor, "start", lambda _: None),
        mock.patch.object(CircuitSync, "start", lambda _: None),  # no money depends on it
        # Idle timers were half of the cost of a schedule. What they send decides no promise.
        mock.patch.object(import_hints, "SEND_EVERY", 1.0),
        mock.patch.object(recent_failures, "EVERY", 20.0),
        mock.patch.object(service, "STEP", 3.0),
        mock.patch.object(sweep, "PASS", 6.0 if trims else 100.0),
        mock.patch.object(archive_checkpoint, "MIN_AGE", timedelta(seconds=1)),  # no schedule outlives a marker
    ):
        yield
    random.setstate(state)


@contextlib.contextmanager
def _silence() -> Iterator[None]:
    """No line of the log: every fault would have some."""
    log = logging.getLogger("gateway")
    level = log.level
    log.setLevel(logging.CRITICAL)
    yield
    log.setLevel(level)


_loaded: list[Plugins] = []


@contextlib.contextmanager
def _collected() -> Iterator[None]:
    """Collect what the block leaves, and nothing inside it: a finalizer at a random moment would change the schedule.

    What was there before is set aside, which costs nothing; to look through it takes 100 ms.
    """
    gc.disable()
    gc.freeze()
    try:
        yield
    finally:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what dead processes have left open
            gc.collect()
        gc.unfreeze()
        gc.enable()


def run(seed: int, folder: Path, plan: Plan = Plan()) -> Report:  # noqa: B008 - frozen
    """Run one schedule."""
    if not _loaded:
        _loaded.append(plugins())
    with _collected():
        return _run(seed, folder, plan)


def _run(seed: int, folder: Path, plan: Plan) -> Report:
    place = Path(tempfile.mkdtemp(prefix=f"world-{seed}-", dir=folder))
    world = World(seed, place, _loaded[0], plan)
    asyncio.set_event_loop(world.loop)
    try:
        with _simulated(world):
            try:
                broken = world.loop.run_until_complete(asyncio.wait_for(world.live(), ENDS_WITHIN))
            except TimeoutError:
                broken = ["the schedule does not end"]
            except Stuck:
                broken = ["the world is stuck"]
            except GatewayError as error:
                broken = [f"the world could not be read: {error.log_text()}"]
            except Exception as error:
                # The schedule's edge: its seed is printed, and the other schedules go on.
                broken = [f"an error ends the schedule: {error!r}"]
            world.close()
    finally:
        asyncio.set_event_loop(None)
        shutil.rmtree(place, ignore_errors=True)
    named, log = world.named, world.log
    digest = hashlib.sha256("\n".join(log).encode()).hexdigest()[:16]
    return Report(seed, plan, named, broken, log, digest)


def shrunk(report: Report, folder: Path) -> Report:
    """The smallest schedule found that breaks a promise: first without faults, then with fewer calls."""
    best = report
    for place in range(len(report.faults)):
        tried = run(best.seed, folder, Plan(best.plan.calls, best.plan.without | {place}))
        best = tried if tried.broken else best
    fewer = best.plan.calls // 2
    while fewer and (tried := run(best.seed, folder, Plan(fewer, best.plan.without))).broken:
        best, fewer = tried, fewer // 2
    return best
