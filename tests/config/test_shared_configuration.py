"""The hash of a configuration: equal on machines that serve the same, whatever belongs to the machine alone."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.config.loader import parse
from gateway.config.shared_configuration import configuration_hash

BASE: dict[str, Any] = {
    "providers": {"openai": {"plugin": "openai", "api_key": "env:OPENAI_API_KEY"}},
    "models": {"m": {"provider": "openai", "price": {"input": 1, "output": 2}}},
    "groups": {"default": {"rpm": 10}},
}


def hash_of(**sections: Any) -> str:
    return configuration_hash(parse({**BASE, **sections}, demo=True))


@pytest.mark.holds("operations/machines.md#several-machines-1")
@pytest.mark.parametrize(
    "sections",
    [
        {"server": {"host": "10.0.0.2", "port": 8090, "workers": 4, "shutdown_delay": 10}},
        {"server": {"limits": {"spool_dir": "/uploads", "max_connections": 9, "max_memory": 2**30}}},
        {"metrics": {"port": 9191}},
        {"store": {"url": "redis://10.0.0.9:6379/0", "data_dir": "elsewhere"}},
        {"database": {"url": "postgresql://10.0.0.9/gateway"}},
        {"console": {"enabled": False}},
        {"log": {"level": "debug"}},
        {"models": {"m": {"price": {"output": 2, "input": 1}, "provider": "openai"}}},
    ],
)
def test_what_belongs_to_a_machine_does_not_count(sections: dict[str, Any]) -> None:
    assert hash_of(**sections) == hash_of()


@pytest.mark.holds("operations/machines.md#several-machines-1")
@pytest.mark.parametrize(
    "sections",
    [
        {"models": {"m": {"provider": "openai", "price": {"input": 2, "output": 2}}}},
        {"models": {"n": {"provider": "openai", "price": {"input": 1, "output": 2}}}},
        {"groups": {"default": {"rpm": 11}}},
        {"groups": {"default": {"rpm": 10, "price_factor": 2}}},
        {"providers": {"openai": {"plugin": "openai", "api_key": "env:OTHER"}}},
        {"server": {"limits": {"commit_after": 5}}},
    ],
)
def test_prices_limits_providers_and_treatment_of_callers_count(sections: dict[str, Any]) -> None:
    assert hash_of(**sections) != hash_of()


def test_hash_is_short_and_the_same_in_each_process() -> None:
    assert len(hash_of()) == 12
    assert hash_of() == hash_of()
