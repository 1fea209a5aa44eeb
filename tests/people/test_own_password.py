"""What a person who is signed in does with the own password costs a bounded amount of work, and others little time."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from typing import Any

import pytest
from argon2 import PasswordHasher

from gateway.errors import InvalidValue, SignInFailed, SignInLimited
from gateway.people.sign_in_limits import PASSWORD_CHANGES, PASSWORD_CHECKS
from gateway.web.turns import Turns
from tests.admin.services import PASSWORD, ROOT, Services

NEW = "another good password"
LOOPS, ROUNDS = 10, 4


class Watched:
    """Counts what the hasher does, and how much of it at the same time."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.runs = self.most = 0
        self._running = 0
        self._lock = threading.Lock()
        for name in ("hash", "verify"):
            monkeypatch.setattr(PasswordHasher, name, self._counting(getattr(PasswordHasher, name)))

    def _counting(self, function: Any) -> Any:
        def counted(*args: Any) -> Any:
            with self._lock:
                self.runs, self._running = self.runs + 1, self._running + 1
                self.most = max(self.most, self._running)
            try:
                return function(*args)
            finally:
                with self._lock:
                    self._running -= 1

        return counted


async def loops(s: Services, current: str, new: str) -> Counter[str]:
    """One member changes the password in ten loops at once; the results by their kind."""
    ann = (await s.people.users.find(ROOT, "ann@example.com")).actor("192.0.2.1")

    async def change() -> str:
        try:
            await s.people.sign_in.change_password(ann, current, new, session_id="")
        except (SignInFailed, SignInLimited, InvalidValue) as error:
            return type(error).__name__
        return "done"

    async def loop() -> list[str]:
        return [await change() for _ in range(ROUNDS)]

    ended = await asyncio.gather(*(loop() for _ in range(LOOPS)))
    return Counter(result for results in ended for result in results)


@pytest.mark.holds("people.md#signing-in-3", "security.md#shares-6")
async def test_member_who_changes_the_password_in_ten_loops_makes_few_hashes_and_events(
    services: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with services() as s:
        await s.user(password=PASSWORD)
        events = (await s.actions()).count("users.password")
        watched = Watched(monkeypatch)
        found = await loops(s, PASSWORD, PASSWORD)
        assert found == {"done": PASSWORD_CHANGES, "SignInLimited": LOOPS * ROUNDS - PASSWORD_CHANGES}
        assert watched.runs <= 2 * PASSWORD_CHANGES + 1 and watched.most == 1  # once for users without a password
        assert (await s.actions()).count("users.password") == events + PASSWORD_CHANGES
        await s.signed_in()


@pytest.mark.holds("people.md#signing-in-3", "security.md#shares-6")
async def test_wrong_current_passwords_are_limited_with_the_changes(
    services: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with services() as s:
        await s.user(password=PASSWORD)
        watched = Watched(monkeypatch)
        found = await loops(s, "a wrong password", NEW)
        assert found == {"SignInFailed": PASSWORD_CHANGES, "SignInLimited": LOOPS * ROUNDS - PASSWORD_CHANGES}
        assert watched.runs <= PASSWORD_CHANGES + 1 and watched.most == 1
        assert (await loops(s, PASSWORD, NEW)) == {"SignInLimited": LOOPS * ROUNDS}


async def test_new_password_that_is_refused_makes_no_hash(services: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    async with services() as s:
        await s.user(password=PASSWORD)
        watched = Watched(monkeypatch)
        assert await loops(s, PASSWORD, "short") == {"InvalidValue": LOOPS * ROUNDS}
        assert watched.runs == 0


@pytest.mark.holds("people.md#signing-in-3", "security.md#shares-6")
async def test_people_confirm_their_password_a_limited_number_of_times_and_operators_any(services: Any) -> None:
    async with services() as s:
        ann = (await s.user(password=PASSWORD)).actor("")
        root = (await s.user("root@example.com", password=PASSWORD, role="operator")).actor("")
        for _ in range(PASSWORD_CHECKS):
            await s.people.sign_in.confirm_password(ann, PASSWORD)
            await s.people.sign_in.confirm_password(root, PASSWORD)
        with pytest.raises(SignInLimited, match="given your password too often"):
            await s.people.sign_in.confirm_password(ann, PASSWORD)
        await s.people.sign_in.confirm_password(root, PASSWORD)
        await s.signed_in()


async def test_turns_of_a_name_are_taken_one_by_one_and_forgotten() -> None:
    turns, running, most = Turns(9, refusal=""), Counter[str](), Counter[str]()

    async def work(name: str) -> None:
        async with turns.of(name):
            running[name] += 1
            most[name] = max(most[name], running[name])
            await asyncio.sleep(0)
            running[name] -= 1

    tasks = [asyncio.create_task(work(name)) for name in "aaabbb"]
    await asyncio.sleep(0)
    tasks[1].cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert most == {"a": 1, "b": 1} and len(turns) == 0
