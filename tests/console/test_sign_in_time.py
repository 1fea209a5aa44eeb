"""How long the sign-in page takes to refuse: the time does not tell whether there is a user with the e-mail address."""

from __future__ import annotations

import time
from collections.abc import Iterator
from statistics import median

import pytest
from argon2 import PasswordHasher

from gateway.people import sign_in_limits
from gateway.people.password_hashes import PasswordHashes
from tests.console.client import PASSWORD, Browser

pytestmark = pytest.mark.slow

ATTEMPTS = 200  # of each kind, in turn, so that other work of the machine meets both
WITHIN = 0.10
MEASUREMENTS = 3  # at most: on a busy machine one may differ by chance


@pytest.fixture
def hashes() -> Iterator[PasswordHashes]:
    """Hashes that cost a tenth of those in operation: whatever else takes time for one kind alone weighs more."""
    hashes = PasswordHashes(PasswordHasher(time_cost=1, memory_cost=16_384, parallelism=1))
    yield hashes
    hashes.close()


@pytest.mark.holds("console.md#security-7")
async def test_refusal_of_an_unknown_email_takes_the_time_of_a_known_one(
    console, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Attempts are counted as always, but the limits are not reached: a limited attempt checks no password.
    monkeypatch.setattr(sign_in_limits, "PER_SUBJECT", 10 * MEASUREMENTS * ATTEMPTS)
    monkeypatch.setattr(sign_in_limits, "PER_ADDRESS", 20 * MEASUREMENTS * ATTEMPTS)
    async with console() as c:
        await c.user("known@example.com", password=PASSWORD)
        browser, ratios = await c.browser(), list[float]()
        while len(ratios) < MEASUREMENTS:
            known, unknown = await medians(browser, "known@example.com", "unknown@example.com")
            print(f"median of {ATTEMPTS} refusals: known {1000 * known:.2f} ms, unknown {1000 * unknown:.2f} ms")
            ratios.append(unknown / known)
            if abs(ratios[-1] - 1) <= WITHIN:
                return
        raise AssertionError(f"unknown / known: {ratios}")


async def medians(browser: Browser, *emails: str) -> list[float]:
    """The median seconds of a refusal for each address; which one comes first alternates."""
    token, took = await browser.token("/sign-in"), {email: list[float]() for email in emails}
    for number in range(ATTEMPTS):
        for email in emails if number % 2 else reversed(emails):
            form = {"xsrf": token, "email": email, "password": "a wrong password"}
            began = time.perf_counter()
            status = (await browser.ask("POST", "/sign-in", form)).status
            took[email].append(time.perf_counter() - began)
            assert status == 401
    return [median(times) for times in took.values()]
