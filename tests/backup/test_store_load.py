"""Records are written into a store in portions that a slow server takes, too."""

from __future__ import annotations

from gateway.backup.store_load import MOST_BYTES, _portions
from gateway.ledger.gather_all import AT_ONCE


def test_portion_has_few_commands_if_they_are_large() -> None:
    large = [("SET", f"key{number}", b"x" * (MOST_BYTES // 2)) for number in range(5)]
    assert [len(portion) for portion in _portions(iter(large))] == [2, 2, 1]
    small = [("PEXPIREAT", f"key{number}", number) for number in range(2 * AT_ONCE + 1)]
    portions = list(_portions(iter(small)))
    assert [len(portion) for portion in portions] == [AT_ONCE, AT_ONCE, 1]
    assert [command for portion in portions for command in portion] == small
