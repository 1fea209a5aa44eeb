"""No sequence of three requests gives a token, or a person, anything of another scope or role."""

from __future__ import annotations

import sys
import time
from typing import Any

import pytest

from gateway.admin.actor import SCOPES, SITE_ONLY
from tests.sequences.walker import Walked
from tests.sequences.walks import walk_of_person, walk_of_token

TOKENS = [(scope, account) for scope in SCOPES for account in ("", "acme") if not (account and scope in SITE_ONLY)]
PEOPLE = ("olga", "max", "pia", "vera")


def report(name: str, walked: Walked, began: float) -> None:
    """Say what was covered; `pytest -s` shows it, also with `-n`: xdist drops what a worker writes to stdout."""
    seconds = time.monotonic() - began
    print(
        f"\n{name}: {walked.sequences} sequences of {walked.steps} requests, {walked.states} states, "
        f"{walked.requests} requests sent, {seconds:.1f} s",
        file=sys.stderr,
        flush=True,
    )


@pytest.mark.holds("admin-api.md#scopes-5", "security.md#scopes-of-admin-tokens-9")
@pytest.mark.gen_test(timeout=1800)
@pytest.mark.parametrize(("scope", "account"), TOKENS)
async def test_three_requests_of_a_token_with_one_scope_gain_nothing_of_another(
    console: Any, scope: str, account: str
) -> None:
    began = time.monotonic()
    walked = await walk_of_token(console, scope, account=account, length=3)
    report(f"{scope} {account}", walked, began)
    assert walked.gained == {}


@pytest.mark.holds("security.md#scopes-of-admin-tokens-9")
@pytest.mark.gen_test(timeout=1800)
@pytest.mark.parametrize("name", PEOPLE)
async def test_three_requests_of_a_person_gain_nothing_of_another_role(console: Any, name: str) -> None:
    began = time.monotonic()
    walked = await walk_of_person(console, name, length=3)
    report(name, walked, began)
    assert walked.gained == {}
