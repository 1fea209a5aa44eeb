"""What a quick run leaves out beside the slow tests: `pytest -m "not slow"`, as in `tox -e quick`.

It tries fewer random cases and does not load the SDKs of vendors, which take seconds in each of its processes. Tests of
what a provider sends then check the body by their own assertions only; a full run also checks it by the SDK's types.
`tests.conftest` sets `is_on` before the tests are imported.
"""

from __future__ import annotations

SHARE = 5

is_on = False


def examples(count: int) -> int:
    """How many random cases a test tries: `count`, or a fifth of them in a quick run."""
    return max(1, count // SHARE) if is_on else count
