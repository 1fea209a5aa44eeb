"""Notes what the attempts of a call answered, where one fails: a call whose first attempt serves notes nothing.

The notes are in the order in which the attempts ended. The attempt that serves has none; `answers_of` adds it at the
end of the call. Sharp edge: the HTTP status is that of the last answer since the attempt began.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from gateway.errors.attempt_answer import CANCELLED, MOST_ANSWERS, AttemptAnswer, code_of, outcome_code
from gateway.http_client.send_state import Awaited, SendState
from gateway.routing.router import Candidate


def note_failure(state: SendState, tried: Sequence[Candidate], candidate: Candidate, error: BaseException) -> None:
    """The current attempt of the call has failed; does nothing if a hedge has noted all of `tried`."""
    if len(state.failures) < len(tried):
        _note(state, candidate, code_of(error), state.all_answers(), state.started)


def answers_of(state: SendState, tried: Sequence[Candidate], outcome: str) -> tuple[AttemptAnswer, ...] | None:
    """What each of `tried` answered; None if that says no more than the outcome of the call.

    An attempt that is not noted has served, or was the last one when the call was cut.
    """
    noted = state.failures
    if len(tried) == 1 and len(noted) == 1 and not noted[0].status and noted[0].code == outcome:
        return None
    names = [(answer.provider, answer.model) for answer in noted]
    code, answers, seconds = outcome_code(outcome), list(noted), time.monotonic() - state.started
    for candidate in tried[:MOST_ANSWERS]:
        last = _answer(candidate, code, state.all_answers(), state.started, seconds)
        if (last.provider, last.model) in names:
            names.remove((last.provider, last.model))
        else:
            answers.append(last)
    return tuple(answers)


class Race:
    """The two attempts of a hedge, from the start of the second one."""

    def __init__(self, state: SendState, first: Candidate, second: Candidate) -> None:
        self._state = state
        self._runs = [(first, state.started), (second, time.monotonic())]
        self._running = [first, second]

    def failed(self, candidate: Candidate, error: BaseException | None) -> None:
        """One of them has failed."""
        self._end(candidate, code_of(error))

    def won(self, candidate: Candidate) -> None:
        """One of them has answered: its start and its answer are those of the call."""
        place = self._place(candidate)
        self._running.remove(candidate)
        self._state.started = self._runs[place][1]
        parts = self._state.parts
        if place < len(parts):
            self._state.parts = (*parts[:place], *parts[place + 1 :], parts[place])

    def end(self) -> None:
        """The attempts that still run are cancelled."""
        late = self._state.late
        for candidate in tuple(self._running):
            self._end(candidate, CANCELLED if late is None else code_of(late))

    def _end(self, candidate: Candidate, code: str) -> None:
        place, parts = self._place(candidate), self._state.parts
        self._running.remove(candidate)
        started = self._runs[place][1]
        # Tasks begin in the order in which they were made; one that was cancelled before has no part.
        _note(self._state, candidate, code, parts[place].answers if place < len(parts) else (), started)

    def _place(self, candidate: Candidate) -> int:
        return 0 if candidate is self._runs[0][0] else 1


def _note(state: SendState, candidate: Candidate, code: str, heard: Sequence[Awaited], started: float) -> None:
    if len(state.failures) < MOST_ANSWERS:
        seconds = time.monotonic() - started
        state.failures = (*state.failures, _answer(candidate, code, heard, started, seconds))


def _answer(candidate: Candidate, code: str, heard: Sequence[Awaited], started: float, seconds: float) -> AttemptAnswer:
    status = next((one.status for one in reversed(heard) if one.status and one.heard >= started), 0)
    return AttemptAnswer.of(candidate.target.provider, candidate.model.name, code, status=status, seconds=seconds)
