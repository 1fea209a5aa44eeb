"""Runs the gateway's own Lua scripts on the model, by Lua 5.1, which Redis and Valkey have inside, too.

An `Engine` compiles each script once; the servers of a process share one, because to compile costs as much as 20 calls.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Any

from lupa import lua51

from tests.simulation.replies import Double, Fault, Map, Pairs, Status, number_text
from tests.simulation.store_model import StoreModel

#: `redis` as scripts see it, around two functions of Python. An error is a table with `err`, as the server has it.
_REDIS = b"""
local call, is_error = ...
redis = {}
function redis.call(...)
  local reply = call(...)
  if is_error(reply) then error(reply, 0) end
  return reply
end
function redis.pcall(...) return call(...) end
function redis.status_reply(text) return { ok = text } end
function redis.error_reply(text) return { err = text } end
return function(script, keys, arguments)
  local good, reply = pcall(script, keys, arguments)
  if good or type(reply) == 'table' then return reply end
  return { err = 'ERR ' .. tostring(reply) }
end
"""
_WRAP = b"return function(KEYS, ARGV) %b\nend"


class Engine:
    """Lua with its compiled scripts; `execute` is that of the model whose script runs."""

    def __init__(self) -> None:
        self.lua = lua51.LuaRuntime(encoding=None, register_eval=False, register_builtins=False)
        self.table = self.lua.table_from
        self.execute: Callable[[list[bytes]], Any]
        self._compiled: dict[bytes, Callable[[Any, Any], Any]] = {}  # by their source
        self.run = self.lua.compile(_REDIS)(self._call, self._is_error)

    def compiled(self, source: bytes) -> Callable[[Any, Any], Any]:
        """The function of a script."""
        found = self._compiled.get(source)
        if found is None:
            _, _, rest = source.partition(b"\n") if source.startswith(b"#!") else (b"", b"", source)
            found = self._compiled[source] = self.lua.execute(_WRAP % rest)
        return found

    def _call(self, *arguments: Any) -> Any:
        try:
            return self._to_lua(self.execute([_argument(one) for one in arguments]))
        except Fault as fault:
            return self.table({b"err": str(fault).encode()})

    def _is_error(self, reply: Any) -> bool:
        return lua51.lua_type(reply) == "table" and reply[b"err"] is not None

    def _to_lua(self, reply: Any) -> Any:
        match reply:
            case None:
                return False
            case Status():
                return self.table({b"ok": bytes(reply)})
            case Double():
                return number_text(reply)
            case bytes() | int():
                return reply
            case Map():
                return self.table([one for pair in reply.items() for one in pair])
            case Pairs():
                return self.table([one for member, score in reply for one in (member, number_text(score))])
            case list():
                return self.table([self._to_lua(one) for one in reply])
        raise AssertionError(f"Lua gets no {type(reply)}")


class Scripts:
    """The scripts that a server has, by their hash."""

    def __init__(self, model: StoreModel, engine: Engine | None = None) -> None:
        self._model = model
        self._engine = engine or Engine()
        self._known: dict[bytes, Callable[[Any, Any], Any]] = {}

    def load(self, source: bytes) -> bytes:
        """Keep a script; returns its hash."""
        sha1 = hashlib.sha1(source, usedforsecurity=False).hexdigest().encode()
        self._known[sha1] = self._engine.compiled(source)
        return sha1

    def forget(self) -> None:
        """As after a restart of the server."""
        self._known.clear()

    def run(self, sha1: bytes, arguments: Sequence[bytes]) -> Any:
        """EVALSHA with what follows the hash; raises the `Fault` of a script that fails."""
        script = self._known.get(sha1)
        if script is None:
            raise Fault("NOSCRIPT No matching script.")
        count = int(arguments[0])
        keys, rest = arguments[1 : 1 + count], arguments[1 + count :]
        engine = self._engine
        engine.execute = self._model.execute
        reply = _from_lua(engine.run(script, engine.table(keys), engine.table(rest)))
        if isinstance(reply, Fault):
            raise reply
        return reply


def _from_lua(value: Any) -> Any:
    if value is None or value is False:
        return None
    if value is True:
        return 1
    if isinstance(value, bytes | int):
        return value
    if isinstance(value, float):
        return int(value)
    if value[b"err"] is not None:
        return Fault(value[b"err"].decode())
    if value[b"ok"] is not None:
        return Status(value[b"ok"])
    found, at = [], 1
    while (one := value[at]) is not None:
        found.append(_from_lua(one))
        at += 1
    return found


def _argument(value: Any) -> bytes:
    if isinstance(value, bytes):
        return value
    assert isinstance(value, int | float), f"no argument of a command is a {type(value)}"
    return b"%d" % value if float(value).is_integer() else b"%.17g" % value
