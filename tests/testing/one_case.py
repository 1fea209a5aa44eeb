"""The conformance kit with one of its cases alone."""

from __future__ import annotations

import pytest

from gateway.testing import conformance


def only(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kit runs this case of chat alone, with the upstream's or without."""
    for part in ("CASES", "UPSTREAM_CASES"):
        cases = [case for case in getattr(conformance, part)["chat"] if case.__name__ == name]
        monkeypatch.setattr(conformance, part, {"chat": tuple(cases)})
    assert conformance.CASES["chat"] or conformance.UPSTREAM_CASES["chat"], name
