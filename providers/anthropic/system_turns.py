"""Messages with the role `system` inside a conversation, for an upstream that takes them in the user's turns only.

Their text becomes a part of the user's turn beside it, since an upstream may want turns that alternate. Sharp edge:
results of tools must come first after their calls, so a text between calls and results moves behind the results.
"""

from __future__ import annotations

import msgspec
from msgspec import Raw

from .native import has_system_turn

Turn = dict[str, Raw]

SYSTEM, USER = b'"system"', b'"user"'
EMPTY = (b'""', b"[]")

_turns = msgspec.json.Decoder(list[Turn])
_blocks = msgspec.json.Decoder(list[Raw])


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
    return Raw(msgspec.json.encode(_joined(turns + waiting)))


def _joined(turns: list[Turn]) -> list[Turn]:
    """The turns, with those of the user that follow each other as one."""
    joined: list[Turn] = []
    for turn in turns:
        if joined and bytes(joined[-1].get("role", b"")) == bytes(turn.get("role", b"")) == USER:
            before = joined.pop()
            turn = {**turn, "content": Raw(msgspec.json.encode([*_blocks_of(before), *_blocks_of(turn)]))}
        joined.append(turn)
    return joined


def _blocks_of(turn: Turn) -> list[Raw]:
    content = turn.get("content", Raw(b"[]"))
    if bytes(content).startswith(b"["):
        return _blocks.decode(content)
    return [Raw(b'{"type":"text","text":%b}' % bytes(content))]
