"""The attacks of `test_surfaces` on the paths of each dialect: refused in the shape of the dialect, nothing changed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from .garbage import Forge
from .surfaces import Open, open_v1
from .test_surfaces import settings as settings
from .test_surfaces import (
    test_body_of_a_refused_request_is_not_taken_for_the_next_request as test_body_of_a_refused_request_is_none,
)
from .test_surfaces import test_heads_and_bodies_that_never_arrive_are_408 as test_what_never_arrives_is_408
from .test_surfaces import test_malformed_requests_are_refused_and_change_nothing as test_malformed_requests_are_refused
from .test_surfaces import test_nothing_is_smuggled_behind_a_malformed_request as test_nothing_is_smuggled

__all__ = [
    "settings",
    "test_body_of_a_refused_request_is_none",
    "test_malformed_requests_are_refused",
    "test_nothing_is_smuggled",
    "test_what_never_arrives_is_408",
]

PATHS = (
    "/v1/responses", "/v1/responses/input_tokens", "/v1/messages", "/v1/messages/count_tokens",
    "/v1beta/models/m1:generateContent", "/v1beta/models/m1:streamGenerateContent?alt=sse",
    "/v1beta/models/m1:countTokens", "/v1beta/models/m1:embedContent", "/openai/deployments/m1/chat/completions",
)  # fmt: skip


@pytest.fixture(params=PATHS)
def surface(request: pytest.FixtureRequest) -> Open:
    """Opens one of the paths with some `ServerLimits`."""
    key = request.getfixturevalue("api_key").text
    forge = replace(Forge.of_key(key), target=request.param.encode())
    return open_v1(request.getfixturevalue("gateway"), request.getfixturevalue("upstream"), forge)
