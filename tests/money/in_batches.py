"""Calls as lines of batches: the handler, the pipeline and the results are those of the runner of batches."""

from __future__ import annotations

import time

import msgspec
from msgspec import structs

from gateway.accounts.key_record import CreatedKey
from gateway.batches.batch import WINDOW, Batch, new_batch_id
from gateway.batches.lines import Line
from gateway.batches.results import Result
from gateway.inference.pipeline import Pipeline
from gateway.runtime.batches.line_call import Attempt, Budget, LineCalls
from gateway.runtime.batches.result_lines import answered
from gateway.runtime.gateway import Gateway
from tests.money.cases import Case, Round
from tests.money.ingress import ingress_of
from tests.money.observed import Seen
from tests.money.rounds import NO_TRUTH

#: Of the choices of a case: with a session no case is sent as Gemini's contents, which no batch has.
IN_SESSION = 2


def in_batches(one: Round) -> Round:
    """The round with calls that batches may have: none is streamed, and sessions have no budget."""
    cases = [structs.replace(case, stream=False, draw=case.draw & ~6 | IN_SESSION) for case in one.cases]
    return structs.replace(one, cases=cases, session_budget=None, in_batch=True)


class InBatches:
    """A `Driver`; each call is a line of a batch of its own."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._pipeline = Pipeline(gateway)

    def leave(self, case: Case) -> bool:
        """No caller waits for a line."""
        return False

    async def call(self, case: Case, key: CreatedKey) -> Seen:
        """Run the line. Its settlement is sent again, as after a kill between the log and the journal."""
        ingress, settled = ingress_of(case), list[Result]()
        body = msgspec.json.encode(ingress.document(case))
        batch = _batch(key, ingress.path)
        line = Line(1, case.name, body)

        def written(line: Line, attempt: Attempt) -> None:
            if attempt.cost:
                settled.append(answered(line, attempt))

        calls = LineCalls(self._gateway, self._pipeline, batch, Budget(None, 0), written)
        attempt = await calls.run(line)
        assert len(settled) == bool(attempt.cost), (attempt, settled)
        entries = [result.entry for result in settled if result.entry is not None]
        assert len(entries) == len(settled)
        assert await self._gateway.ledger.book_refused(key.account, entries) == [""] * len(entries)
        seen = Seen(case, NO_TRUTH, attempt.request_id, len(body), status=attempt.status)
        seen.words = ingress.words(attempt.body)
        seen.whole = attempt.status == 200
        return seen


def _batch(key: CreatedKey, endpoint: str) -> Batch:
    now = int(time.time())
    return Batch(
        id=new_batch_id(),
        account=key.account,
        key=key.id,
        user="",
        shows_cost=False,
        address="127.0.0.1",
        place="",
        endpoint=endpoint,
        input_file_id="",
        created_at=now,
        expires_at=now + WINDOW,
    )
