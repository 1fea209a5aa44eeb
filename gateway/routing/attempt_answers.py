"""Notes what the attempts of a call answered, where one fails: a call whose first attempt serves notes nothing.

The notes are in the order in which the attempts ended. The attempt that serves has none; `answers_of` adds it at the
end of the call. If a hedge ends before either of its attempts has answered, those that still ran are noted without a
code. They get the code of the error that ended the hedge, or else the outcome of the call. An attempt that the gateway
gave up has what its upstream may charge for it: what was reported, or else the estimate of the prompt. So has each
attempt of a joined stream whose upstream has reported anything. Sharp edge: an attempt may send its request twice. Its
time begins with the first request; its HTTP status is of an answer to the second.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import cast

from msgspec.structs import replace

from gateway.billing.usage import is_possible
from gateway.errors import UpstreamTimeout
from gateway.errors.attempt_answer import CANCELLED, MOST_ANSWERS, NOT_JOINED, AttemptAnswer, code_of, outcome_code
from gateway.http_client.send_state import PendingAnswer, SendState
from gateway.routing.router import Candidate
from gateway.schemas.chat_response import CompletionUsage

_OPEN = ""  # the code of an attempt that was cancelled before any other had answered


def note_failure(state: SendState, tried: Sequence[Candidate], candidate: Candidate, error: BaseException) -> None:
    """The current attempt of the call has failed; adds nothing if a hedge has noted all of `tried`."""
    code = code_of(error)
    state.failures = _closed(state.failures, code)
    if len(state.failures) < len(tried):
        given_up = isinstance(error, UpstreamTimeout) and error.origin != "connection"
        since, begun = state.started, state.begun
        _note(state, candidate, code, state.all_answers(), since=since, begun=begun, given_up=given_up)
    state.reported = None


def note_usage(state: SendState, usage: object) -> None:
    """The upstream of the current attempt has counted; the usage of the line is another one."""
    if is_possible(usage):
        counts = cast("CompletionUsage", usage)
        state.reported = counts.prompt_tokens, counts.completion_tokens


def answers_of(
    state: SendState, tried: Sequence[Candidate], outcome: str, *, prompt: int
) -> tuple[AttemptAnswer, ...] | None:
    """What each of `tried` answered; None if that says no more than the outcome of the call.

    An attempt that is not noted has served, or was the last one when the call was cut. `prompt`: estimated tokens.
    """
    code = outcome_code(outcome)
    noted = _closed(state.failures, code)
    if any(answer.estimated for answer in noted):
        noted = tuple(replace(answer, tokens_in=prompt) if answer.estimated else answer for answer in noted)
    if len(tried) == 1 and len(noted) == 1 and not noted[0].status and noted[0].code == outcome:
        return None
    names = [(answer.provider, answer.model) for answer in noted]
    answers = list(noted)
    for candidate in tried[:MOST_ANSWERS]:
        last = _answer(candidate, code, state.all_answers(), since=state.started, begun=state.begun)
        if (last.provider, last.model) in names:
            names.remove((last.provider, last.model))
        elif state.reported is not None:
            answers.append(replace(last, tokens_in=state.reported[0], tokens_out=state.reported[1]))
        else:
            answers.append(last)
    return tuple(answers)


def note_not_joined(state: SendState, tried: Sequence[Candidate], candidate: Candidate) -> None:
    """The current attempt answered, but its text did not fit what another one had delivered."""
    if len(state.failures) < len(tried):
        since, begun = state.started, state.begun
        _note(state, candidate, NOT_JOINED, state.all_answers(), since=since, begun=begun, given_up=True)
    state.reported = None


class Race:
    """The two attempts of a hedge, from the start of the second one."""

    def __init__(self, state: SendState, first: Candidate, second: Candidate) -> None:
        self._state = state
        self._runs = [(first, state.begun), (second, time.monotonic())]
        self._running = [first, second]
        self._won: int | None = None  # the place of the one that has answered

    def failed(self, candidate: Candidate, error: BaseException | None) -> None:
        """One of them has failed."""
        self._end(candidate, code_of(error))

    def won(self, candidate: Candidate) -> None:
        """One of them has answered: its start and its answer are those of the call."""
        place = self._place(candidate)
        self._running.remove(candidate)
        self._won = place
        self._state.started = self._state.begun = self._runs[place][1]

    def end(self) -> None:
        """The attempts that still run are cancelled: because the other has answered, or because the hedge was ended."""
        for candidate in tuple(self._running):
            self._end(candidate, _OPEN if self._won is None else CANCELLED)
        won, parts = self._won, self._state.parts
        if won is not None and won < len(parts):
            self._state.parts = (*parts[:won], *parts[won + 1 :], parts[won])

    def _end(self, candidate: Candidate, code: str) -> None:
        place, parts = self._place(candidate), self._state.parts
        self._running.remove(candidate)
        # Tasks begin in the order in which they were made; one that was cancelled before has no part.
        part = parts[place] if place < len(parts) else SendState()
        given_up = code in (CANCELLED, _OPEN, UpstreamTimeout.default_code) and part.is_sent()
        self._state.reported = part.reported
        begun = self._runs[place][1]
        _note(self._state, candidate, code, part.answers, since=part.started, begun=begun, given_up=given_up)
        self._state.reported = None

    def _place(self, candidate: Candidate) -> int:
        return 0 if candidate is self._runs[0][0] else 1


def _closed(noted: tuple[AttemptAnswer, ...], code: str) -> tuple[AttemptAnswer, ...]:
    return tuple(replace(answer, code=code) if answer.code == _OPEN else answer for answer in noted)


def _note(
    state: SendState,
    candidate: Candidate,
    code: str,
    heard: Sequence[PendingAnswer],
    *,
    since: float,
    begun: float,
    given_up: bool = False,
) -> None:
    """`given_up`: the gateway ended it after its upstream had the request."""
    if len(state.failures) >= MOST_ANSWERS:
        return
    answer = _answer(candidate, code, heard, since=since, begun=begun)
    if state.reported is not None:
        answer = replace(answer, tokens_in=state.reported[0], tokens_out=state.reported[1])
    elif given_up:
        answer = replace(answer, estimated=True)  # `answers_of` knows the prompt
    state.failures = (*state.failures, answer)


def _answer(
    candidate: Candidate, code: str, heard: Sequence[PendingAnswer], *, since: float, begun: float
) -> AttemptAnswer:
    status = next((one.status for one in reversed(heard) if one.status and one.heard >= since), 0)
    seconds = time.monotonic() - begun
    return AttemptAnswer.of(candidate.target.provider, candidate.model.name, code, status=status, seconds=seconds)
