"""What a provider that lists its models must do; one public function per case, each named after what it proves.

A list is judged as the gateway judges it. Sharp edge: a `FakeUpstream` of chats alone answers 404 to the question for a
list; then the cases are skipped, for it is the test that has no list.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Sequence
from typing import Any, get_args

from gateway.config.settings import Endpoint
from gateway.discovery.checked_lists import checked_list
from gateway.discovery.stored_lists import NO_LIST
from gateway.errors import UpstreamError
from gateway.plugins.model_list import ListedModel, ListLimits
from gateway.plugins.provider import Target
from gateway.testing import whole_call_cases
from gateway.testing.reply import Reply
from gateway.testing.subject import Case, NotConcerned, Subject, assert_upstream_error

NO_LIST_IN_TEST = "the FakeUpstream of this test answers 404 to the question for a list"
NO_DOCUMENT = 2  # bytes, less than any list has


async def models_are_listed(subject: Subject) -> None:
    """A list of ListedModel objects with usable names, each once, known endpoints, and prices that can be charged."""
    listed = await _asked(subject)
    assert isinstance(listed, (list, tuple)), f"list_models returned {type(listed).__name__}, not a list"
    assert listed, "the list has no models"
    for one in listed:
        assert isinstance(one, ListedModel), f"the list has {one!r} instead of a ListedModel"
        unknown = set(one.endpoints) - set(get_args(Endpoint))
        assert not unknown, f"{one.name!r} has endpoints that the gateway does not know: {sorted(unknown)}"
    found = checked_list(listed, NO_LIST, now=time.time(), max_change=10.0, keep=1.0)
    assert not found.left_out, f"entries with a name that is repeated, or has other characters: {found.left_out}"
    for model in found.found.models:
        assert model.problem != "price", f"{model.name}: {model.detail}"


async def model_list_is_bounded(subject: Subject) -> None:
    """An answer that is longer than `limits.most_bytes` is an error: it is not read to its end."""
    await _asked(subject)
    limits = ListLimits(timeouts=subject.target.timeouts, most_bytes=NO_DOCUMENT)
    error = await whole_call_cases.error_of(subject.model_list.list_models(limits), "a list over limits.most_bytes")
    assert_upstream_error(error, subject.secrets)


async def _call(subject: Subject, target: Target) -> object:
    return await subject.model_list.list_models(ListLimits(timeouts=target.timeouts))


async def _asked(subject: Subject) -> Sequence[Any]:
    """The list; NotConcerned if the test's upstream has none."""
    statuses = list[int]()

    def note(reply: Reply) -> Reply:
        statuses.append(reply.status)
        return reply

    if subject.has_upstream:
        subject.fake.tamper = note
    try:
        return await subject.model_list.list_models(ListLimits(timeouts=subject.target.timeouts))
    except UpstreamError:
        if statuses and statuses[-1] == 404:
            raise NotConcerned(NO_LIST_IN_TEST) from None
        raise
    finally:
        if subject.has_upstream:
            subject.fake.tamper = None


def _of_list(case: Case) -> Case:
    """The case where the test's upstream has a list."""

    @functools.wraps(case)
    async def checked(subject: Subject) -> None:
        await _asked(subject)
        await case(subject)

    return checked


CASES: tuple[Case, ...] = (models_are_listed, *map(_of_list, whole_call_cases.local_cases("model_list", _call)))
UPSTREAM_CASES: tuple[Case, ...] = (
    model_list_is_bounded,
    # The question for a list names no model.
    *(
        _of_list(case)
        for case in whole_call_cases.upstream_cases("model_list", _call)
        if case.__name__ != "model_list_model_is_sent"
    ),
)
