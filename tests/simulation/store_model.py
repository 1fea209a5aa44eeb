"""A model of one Redis server: the commands that the gateway uses, on Python's types, with a clock that it is given.

`test_store_model.py` holds it to a real server. It has no memory limit, no persistence, no replicas, no transactions
and no subscriptions. `SCAN`, `HSCAN` and `SSCAN` answer everything at once, in an order of their own. The texts of
errors differ after their first word. A command or an option that it does not know is an AssertionError, so that nothing
is simulated wrongly.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from fnmatch import fnmatchcase
from typing import Any

from tests.simulation.keyspace import Keyspace, Stream, ZSet, integer, score_of
from tests.simulation.replies import OK, WRONG_TYPE, Double, Fault, Map, Pairs, Status

Arguments = Sequence[bytes]


class StoreModel:
    """The data of one server; `clock` gives its time, Unix microseconds."""

    def __init__(self, clock: Callable[[], int]) -> None:
        self.clock = clock
        self.keys = Keyspace(lambda: clock() // 1000)

    def execute(self, arguments: Arguments) -> Any:
        """Run one command; raises the `Fault` of a refusal."""
        name = arguments[0].decode().upper()
        command = getattr(self, f"_{name.lower()}", None)
        assert command is not None, f"the model has no command {name}"
        return command(*arguments[1:])

    # The server

    def _ping(self) -> Any:
        return Status(b"PONG")

    def _time(self) -> Any:
        now = self.clock()
        return [b"%d" % (now // 1_000_000), b"%d" % (now % 1_000_000)]

    def _flushall(self, *options: bytes) -> Any:
        self.keys.values.clear()
        self.keys.ends.clear()
        return OK

    def _client(self, *words: bytes) -> Any:
        return OK

    # Keys

    def _scan(self, cursor: bytes, *options: bytes) -> Any:
        fits = _matcher(options)
        return [b"0", sorted(name for name in list(self.keys.values) if self.keys.get(name) is not None and fits(name))]

    def _del(self, *names: bytes) -> Any:
        return sum(self.keys.remove(name) for name in names)

    def _exists(self, *names: bytes) -> Any:
        return sum(self.keys.get(name) is not None for name in names)

    def _type(self, name: bytes) -> Any:
        kinds = {bytes: b"string", dict: b"hash", set: b"set", ZSet: b"zset", Stream: b"stream", type(None): b"none"}
        return Status(kinds[type(self.keys.get(name))])

    def _rename(self, name: bytes, to: bytes) -> Any:
        if self.keys.get(name) is None:
            raise Fault("ERR no such key")
        self.keys.rename(name, to)
        return OK

    def _expire(self, name: bytes, seconds: bytes, *options: bytes) -> Any:
        return self._pexpire(name, b"%d" % (integer(seconds) * 1000), *options)

    def _pexpire(self, name: bytes, wait: bytes, *options: bytes) -> Any:
        assert options in ((), (b"NX",)), options
        if self.keys.get(name) is None or (options and name in self.keys.ends):
            return 0
        self.keys.expire(name, self.clock() // 1000 + integer(wait))
        return 1

    def _pexpiretime(self, name: bytes) -> Any:
        if self.keys.get(name) is None:
            return -2
        return self.keys.ends.get(name, -1)

    def _expiretime(self, name: bytes) -> Any:
        found = self._pexpiretime(name)
        return found if found < 0 else (found + 500) // 1000

    # Strings

    def _get(self, name: bytes) -> Any:
        return self.keys.typed(name, bytes)

    def _mget(self, *names: bytes) -> Any:
        found = (self.keys.get(name) for name in names)
        return [value if isinstance(value, bytes) else None for value in found]

    def _set(self, name: bytes, value: bytes, *options: bytes) -> Any:
        rest, end, only, keeps = list(options), None, b"", False
        while rest:
            match rest.pop(0).upper():
                case b"PX" | b"EX" as unit:
                    wait = integer(rest.pop(0)) * (1 if unit == b"PX" else 1000)
                    end = self.clock() // 1000 + wait
                    if wait <= 0 or end >= 2**63:
                        raise Fault("ERR invalid expire time in 'set' command")
                case b"NX" | b"XX" as found:
                    only = found
                case b"KEEPTTL":
                    keeps = True
                case other:
                    raise AssertionError(f"the model has no option {other!r} of SET")
        if only and (self.keys.get(name) is None) != (only == b"NX"):
            return None
        before = self.keys.ends.get(name) if keeps else None
        self.keys.put(name, value)
        if (end := before if end is None else end) is not None:
            self.keys.expire(name, end)
        return OK

    def _incrby(self, name: bytes, by: bytes) -> Any:
        more = integer(by)
        before = self.keys.typed(name, bytes)
        value = integer(b"0" if before is None else before) + more
        if not -(2**63) <= value < 2**63:
            raise Fault("ERR increment or decrement would overflow")
        self.keys.change(name, b"%d" % value)
        return value

    def _decrby(self, name: bytes, by: bytes) -> Any:
        return self._incrby(name, b"%d" % -integer(by))

    # Hashes

    def _hset(self, name: bytes, *pairs: bytes) -> Any:
        found = self.keys.made(name, dict)
        before = len(found)
        found.update(zip(pairs[::2], pairs[1::2], strict=True))
        return len(found) - before

    def _hsetnx(self, name: bytes, field: bytes, value: bytes) -> Any:
        found = self.keys.made(name, dict)
        if field in found:
            return 0
        found[field] = value
        return 1

    def _hget(self, name: bytes, field: bytes) -> Any:
        return self.keys.read(name, dict).get(field)

    def _hmget(self, name: bytes, *fields: bytes) -> Any:
        found = self.keys.read(name, dict)
        return [found.get(field) for field in fields]

    def _hgetall(self, name: bytes) -> Any:
        return Map(self.keys.read(name, dict))

    def _hkeys(self, name: bytes) -> Any:
        return list(self.keys.read(name, dict))

    def _hlen(self, name: bytes) -> Any:
        return len(self.keys.read(name, dict))

    def _hexists(self, name: bytes, field: bytes) -> Any:
        return int(field in self.keys.read(name, dict))

    def _hincrby(self, name: bytes, field: bytes, by: bytes) -> Any:
        more = integer(by)
        found = self.keys.made(name, dict)
        try:
            value = integer(found.get(field, b"0"), "ERR hash value is not an integer") + more
        except Fault:
            self.keys.tidy(name)
            raise
        if not -(2**63) <= value < 2**63:
            raise Fault("ERR increment or decrement would overflow")
        found[field] = b"%d" % value
        return value

    def _hdel(self, name: bytes, *fields: bytes) -> Any:
        found = self.keys.read(name, dict)
        gone = sum(found.pop(field, None) is not None for field in dict.fromkeys(fields))
        self.keys.tidy(name)
        return gone

    def _hscan(self, name: bytes, cursor: bytes, *options: bytes) -> Any:
        fits = _matcher(options)
        return [b"0", [one for pair in self.keys.read(name, dict).items() if fits(pair[0]) for one in pair]]

    # Sets

    def _sadd(self, name: bytes, *members: bytes) -> Any:
        found = self.keys.made(name, set)
        before = len(found)
        found.update(members)
        return len(found) - before

    def _srem(self, name: bytes, *members: bytes) -> Any:
        found = self.keys.read(name, set)
        before = len(found)
        found.difference_update(members)
        self.keys.tidy(name)
        return before - len(found)

    def _smembers(self, name: bytes) -> Any:
        return sorted(self.keys.read(name, set))

    def _scard(self, name: bytes) -> Any:
        return len(self.keys.read(name, set))

    def _sismember(self, name: bytes, member: bytes) -> Any:
        return int(member in self.keys.read(name, set))

    def _sscan(self, name: bytes, cursor: bytes, *options: bytes) -> Any:
        return [b"0", sorted(filter(_matcher(options), self.keys.read(name, set)))]

    def _spop(self, name: bytes, count: bytes) -> Any:
        members = sorted(self.keys.read(name, set))[: integer(count)]
        self._srem(name, *members)
        return members

    # Sorted sets

    def _zadd(self, name: bytes, *rest: bytes) -> Any:
        only = rest[0] if rest[0] in (b"XX", b"NX") else b""
        pairs = rest[1:] if only else rest
        scores = [score_of(text) for text in pairs[::2]]
        if only == b"XX" and self.keys.get(name) is None:
            return 0
        found = self.keys.made(name, ZSet)
        added = 0
        for score, member in zip(scores, pairs[1::2], strict=True):
            known = member in found.scores
            if only and known != (only == b"XX"):
                continue
            found.scores[member] = score
            added += not known
        self.keys.tidy(name)
        return added

    def _zrem(self, name: bytes, *members: bytes) -> Any:
        found = self.keys.read(name, ZSet)
        gone = sum(found.scores.pop(member, None) is not None for member in dict.fromkeys(members))
        self.keys.tidy(name)
        return gone

    def _zcard(self, name: bytes) -> Any:
        return len(self.keys.read(name, ZSet).scores)

    def _zscore(self, name: bytes, member: bytes) -> Any:
        found = self.keys.read(name, ZSet).scores.get(member)
        return None if found is None else Double(found)

    def _zmscore(self, name: bytes, *members: bytes) -> Any:
        return [self._zscore(name, member) for member in members]

    def _zrange(self, name: bytes, first: bytes, last: bytes, *options: bytes) -> Any:
        members = self.keys.read(name, ZSet).ordered()
        if options[:1] == (b"BYLEX",):
            return _by_name([member for member, _ in members], first, last, options[1:])
        assert set(options) <= {b"WITHSCORES", b"REV"}, options
        if b"REV" in options:
            members.reverse()
        return _shown(members[_slice(integer(first), integer(last), len(members))], b"WITHSCORES" in options)

    def _zrangebyscore(self, name: bytes, least: bytes, most: bytes, *options: bytes) -> Any:
        members = [pair for pair in self.keys.read(name, ZSet).ordered() if _within(pair[1], least, most)]
        rest = [option for option in options if option != b"WITHSCORES"]
        if rest:
            assert rest[0] == b"LIMIT", options
            offset, count = integer(rest[1]), integer(rest[2])
            members = members[offset : offset + count] if count >= 0 else members[offset:]
        return _shown(members, b"WITHSCORES" in options)

    def _zcount(self, name: bytes, least: bytes, most: bytes) -> Any:
        return sum(_within(score, least, most) for score in self.keys.read(name, ZSet).scores.values())

    def _zremrangebyrank(self, name: bytes, first: bytes, last: bytes) -> Any:
        members = self.keys.read(name, ZSet).ordered()
        return self._zrem(name, *(m for m, _ in members[_slice(integer(first), integer(last), len(members))]))

    # Streams

    def _xadd(self, name: bytes, wanted: bytes, *fields: bytes) -> Any:
        most = None
        if wanted == b"MAXLEN":
            if fields[0] == b"~":  # the server removes entries when it likes; the model never does
                wanted, fields = fields[2], fields[3:]
            else:
                most, wanted, fields = integer(fields[0]), fields[1], fields[2:]
        stream = self.keys.made(name, Stream)
        try:
            added = stream.add(wanted, list(fields), now=self.clock() // 1000)
        except Fault:
            self.keys.tidy(name)
            raise
        while most is not None and len(stream.entries) > most:
            del stream.entries[next(iter(stream.entries))]
        return added

    def _xrange(self, name: bytes, first: bytes, last: bytes, *options: bytes) -> Any:
        return _limited(self.keys.read(name, Stream).between(first, last), options)

    def _xrevrange(self, name: bytes, last: bytes, first: bytes, *options: bytes) -> Any:
        return _limited(self.keys.read(name, Stream).between(first, last)[::-1], options)

    def _xlen(self, name: bytes) -> Any:
        return len(self.keys.read(name, Stream).entries)

    def _xdel(self, name: bytes, *ids: bytes) -> Any:
        return self.keys.read(name, Stream).remove(ids)

    def _xtrim(self, name: bytes, how: bytes, least: bytes) -> Any:
        assert how == b"MINID", how
        return self.keys.read(name, Stream).trim(least)


def _slice(first: int, last: int, size: int) -> slice:
    start = max(0, first + size) if first < 0 else first
    end = last + size if last < 0 else last
    return slice(start, max(start, end + 1))


def _by_name(members: list[bytes], first: bytes, last: bytes, options: Arguments) -> list[bytes]:
    """BYLEX: members of one score by their names, from `[` with, or `(` without the name; - and + are the ends."""
    if options[:1] == (b"REV",):
        first, last, options = last, first, options[1:]
        members = _by_name(members, first, last, ())[::-1]
    else:
        members = [one for one in members if _is_after(one, first) and _is_before(one, last)]
    if not options:
        return members
    assert options[0] == b"LIMIT", options
    offset, count = integer(options[1]), integer(options[2])
    return members[offset : offset + count] if count >= 0 else members[offset:]


def _is_after(member: bytes, edge: bytes) -> bool:
    if edge in (b"-", b"+"):
        return edge == b"-"
    return member > edge[1:] or (edge[:1] == b"[" and member == edge[1:])


def _is_before(member: bytes, edge: bytes) -> bool:
    if edge in (b"-", b"+"):
        return edge == b"+"
    return member < edge[1:] or (edge[:1] == b"[" and member == edge[1:])


def _matcher(options: Arguments) -> Callable[[bytes], bool]:
    """Whether a name fits the MATCH among the options of a scan."""
    given = dict(zip(options[::2], options[1::2], strict=True))
    assert set(given) <= {b"MATCH", b"COUNT"}, options
    pattern = given.get(b"MATCH")
    return (lambda _: True) if pattern is None else (lambda name: fnmatchcase(name, pattern))


def _shown(pairs: Sequence[tuple[bytes, float]], with_scores: bool) -> Any:
    if with_scores:
        return Pairs((member, Double(score)) for member, score in pairs)
    return [member for member, _ in pairs]


def _within(score: float, least: bytes, most: bytes) -> bool:
    after = score > score_of(least[1:]) if least[:1] == b"(" else score >= score_of(least)
    return after and (score < score_of(most[1:]) if most[:1] == b"(" else score <= score_of(most))


def _limited(entries: Iterator[Any] | list[Any], options: Arguments) -> Any:
    found = list(entries)
    if options:
        assert options[0] == b"COUNT", options
        found = found[: integer(options[1])]
    return found


__all__ = ["WRONG_TYPE", "StoreModel"]
