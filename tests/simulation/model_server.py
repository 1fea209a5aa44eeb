"""The model as a server: what a connection sends, and the bytes that it gets."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tests.simulation.replies import OK, Fault, encode
from tests.simulation.scripts import Engine, Scripts
from tests.simulation.store_model import StoreModel

#: Commands of the server rather than of its data.
OWN = frozenset({b"EVALSHA", b"EVAL", b"SCRIPT", b"HELLO", b"SELECT", b"INFO"})


class ModelServer:
    """One server; `clock` gives Unix microseconds. `run_id` is another one after each restart."""

    def __init__(self, clock: Callable[[], int], *, run_id: str = "model", engine: Engine | None = None) -> None:
        self.model = StoreModel(clock)
        self.scripts = Scripts(self.model, engine)
        self.run_id = run_id

    def answer(self, arguments: Sequence[bytes]) -> bytes:
        """The reply to one command, as bytes."""
        try:
            return encode(self.execute(arguments))
        except Fault as fault:
            return encode(fault)

    def knows(self, name: bytes) -> bool:
        """Whether the model has a command."""
        return name in OWN or hasattr(self.model, f"_{name.decode().lower()}")

    def execute(self, arguments: Sequence[bytes]) -> Any:
        """Run one command or script; raises the `Fault` of a refusal."""
        match arguments[0].upper():
            case b"EVALSHA":
                return self.scripts.run(arguments[1], arguments[2:])
            case b"EVAL":
                return self.scripts.run(self.scripts.load(arguments[1]), arguments[2:])
            case b"SCRIPT":
                if arguments[1].upper() == b"FLUSH":
                    self.scripts.forget()
                    return OK
                assert arguments[1].upper() == b"LOAD", arguments[:2]
                return self.scripts.load(arguments[2])
            case b"HELLO" | b"SELECT":
                return OK
            case b"INFO":
                return self._info()
        return self.model.execute(arguments)

    def _info(self) -> bytes:
        return (
            f"run_id:{self.run_id}\r\nmaster_replid:{self.run_id}\r\nrole:master\r\nredis_version:7.4.0\r\nloading:0\r\n"
            "maxmemory_policy:noeviction\r\nevicted_keys:0\r\nmaxmemory:0\r\nused_memory:1000000\r\naof_enabled:1\r\n"
        ).encode()
