"""How the running calls of all machines get from their workers to the console, and a cancellation back.

::

    console (ConsoleCalls) ──ask──► supervisor (ConsoleRelay) ──ask──► every worker, and the runner of batches
                                              └──► the supervisors of the other machines (other_machines)

A worker that does not answer within `ANSWER_WITHIN` seconds is left out and counted, and so is a machine.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence

import msgspec
from msgspec import Struct, structs

from gateway.admin.running_calls import FoundCalls
from gateway.inference.running_calls import CallQuery, RunningCall
from gateway.runtime.call_questions import Cancellation
from gateway.runtime.helper_process import HelperProcess
from gateway.runtime.local_socket import CANCEL, LIST
from gateway.runtime.other_machines import LOOK_EVERY, MachineAnswer, OtherMachines
from gateway.runtime.questions import Question, Questions, read_dropped, read_question, write_reply
from gateway.runtime.worker_process import WorkerProcess

ANSWER_WITHIN = 2.0  # seconds for a worker
MACHINE_WITHIN = ANSWER_WITHIN + LOOK_EVERY + 0.3  # seconds for another machine
RELAY_WITHIN = 2 * ANSWER_WITHIN + 2.0  # seconds for the supervisor: a cancellation asks one after the other


class Answers(Struct, frozen=True, array_like=True):
    """The answers of the machines, and how many gave none."""

    machines: list[MachineAnswer]
    silent: int


_found = msgspec.msgpack.Decoder(list[RunningCall])
_decoder = msgspec.msgpack.Decoder(Answers)


class ConsoleRelay:
    """The supervisor's part: asks all processes that serve calls, also those that drain, and the other machines."""

    def __init__(
        self,
        machine: str,
        name: Callable[[], str],
        workers: Callable[[], Sequence[WorkerProcess]],
        batches: Callable[[], HelperProcess | None] = lambda: None,
    ) -> None:
        self.others = OtherMachines(machine, self._ask_workers)
        self._name = name
        self._workers = workers
        self._batches = batches
        self._open: dict[int, asyncio.Task[None] | None] = {}  # by ticket; None for a question that has not begun

    def answer(self, payload: bytes, send: Callable[[str, bytes], None]) -> Coroutine[None, None, None]:
        """Send the answer to a question of the console."""
        question = read_question(payload)
        self._open[question.ticket] = None
        return self._answer(question, send)

    def drop(self, payload: bytes) -> None:
        """Leave out a question whose asker has left."""
        task = self._open.pop(read_dropped(payload), None)
        if task is not None:
            task.cancel()

    async def _answer(self, question: Question, send: Callable[[str, bytes], None]) -> None:
        if question.ticket not in self._open:
            return
        task = self._open[question.ticket] = asyncio.current_task()
        try:
            ask = self._cancel if question.name == CANCEL else self._list
            found = await ask(question.name, question.payload)
        finally:
            if self._open.get(question.ticket) is task:  # else it was dropped, or a new console has the same tickets
                del self._open[question.ticket]
        send("answer", write_reply(question, msgspec.msgpack.encode(found)))

    async def _list(self, name: str, payload: bytes) -> Answers:
        own, (others, silent) = await asyncio.gather(
            self._ask_workers(name, payload), self.others.ask(name, payload, within=MACHINE_WITHIN)
        )
        return Answers([own, *others], silent)

    async def _cancel(self, name: str, payload: bytes) -> Answers:
        """Others are asked only for a call that does not run here."""
        own = await self._ask_workers(name, payload)
        if any(map(_found.decode, own.workers)):
            return Answers([own], 0)
        others, silent = await self.others.ask(name, payload, within=MACHINE_WITHIN)
        return Answers([own, *others], silent)

    async def _ask_workers(self, name: str, payload: bytes) -> MachineAnswer:
        asked = [life.questions for worker in self._workers() for life in worker.lives if life.ready]
        if (batches := self._batches()) is not None and batches.is_ready:
            asked.append(batches.questions)
        answers = await asyncio.gather(*(one.ask(name, payload, within=ANSWER_WITHIN) for one in asked))
        given = [answer for answer in answers if answer is not None]
        return MachineAnswer(self._name(), given, len(answers) - len(given))


class ConsoleCalls:
    """The console's part: the calls of all workers of all machines."""

    def __init__(self, questions: Questions) -> None:
        self._questions = questions

    async def list(self, query: CallQuery) -> FoundCalls:
        """At most `query.limit` calls of all workers together, in the order of their admission."""
        found = await self._ask(LIST, msgspec.msgpack.encode(query))
        calls = sorted(found.calls, key=lambda call: call.position)[: query.limit]
        return structs.replace(found, calls=calls)

    async def cancel(self, request_id: str, accounts: Sequence[str]) -> FoundCalls:
        """The call that was cancelled, if a worker has it."""
        return await self._ask(CANCEL, msgspec.msgpack.encode(Cancellation(request_id, accounts)))

    async def _ask(self, name: str, payload: bytes) -> FoundCalls:
        # Nobody reads a list whose asker has left; a cancellation is completed.
        answer = await self._questions.ask(name, payload, within=RELAY_WITHIN, ends_with_asker=name == LIST)
        if answer is None:
            return FoundCalls([], 1)
        answers = _decoder.decode(answer)
        calls = [
            structs.replace(call, machine=one.machine)
            for one in answers.machines
            for part in one.workers
            for call in _found.decode(part)
        ]
        return FoundCalls(calls, sum(one.silent for one in answers.machines), answers.silent)
