"""Messages with the role `system` inside a conversation, for an upstream that takes them in the user's turns only.

Their text becomes a turn of the user. The upstream reads turns of one role that follow each other as one turn. Sharp
edge: results of tools must come first after their calls, so a text between calls and results moves behind the results.
"""

from __future__ import annotations

import msgspec
from msgspec import Raw

from .native import has_system_turn

Turn = dict[str, Raw]

SYSTEM, USER = b'"system"', b'"user"'
EMPTY = (b'""', b"[]")

_turns = msgspec.json.Decoder(list[Turn])


def without_system_turns(messages: Raw) -> Raw:
    """The messages with the user in place of the system; as they were if there is no such turn."""
    if not has_system_turn(messages):
        return messages
    turns: list[Turn] = []
    waiting: list[Turn] = []  # texts right behind an answer
    for turn in _turns.decode(messages):
        role = bytes(turn.get("role", b""))
        if role != SYSTEM:
            if role != USER:
                turns, waiting = turns + waiting, []
            turns.append(turn)
            turns, waiting = turns + waiting, []
        elif bytes(turn.get("content", b"")) not in EMPTY:
            follows_answer = bool(turns) and bytes(turns[-1].get("role", b"")) != USER
            (waiting if follows_answer else turns).append({**turn, "role": Raw(USER)})
    return Raw(msgspec.json.encode(turns + waiting))
