"""A call that delivers, as its slot in the checkpoint file stores it, and the settlement made of it after a crash.

The stored form is one msgpack array: account, request_id, key_id, and a nested array of the fields from `at` on. A call
that has delivered nothing yet has nil in place of the nested array. Sharp edge: only the delivered units of the answer
are known. The upstream's own count is lost with the worker.
"""

from __future__ import annotations

import msgspec
from msgspec import Struct, structs

from gateway.amounts import MAX_AMOUNT
from gateway.billing.price import Price
from gateway.billing.usage import Usage, tokens_of
from gateway.ledger.entry import Entry
from gateway.ledger.line_meta import LineMeta

_Charge = tuple[int, LineMeta, Usage, Price, str | None, float]
_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(tuple[str, str, str, _Charge | None])


class CheckpointRecord(Struct, frozen=True):
    """A call that delivers; it is charged like any stream that was cut."""

    account: str
    request_id: str
    key_id: str
    at: int  # µs, Redis time of the admission
    meta: LineMeta
    prompt: Usage
    price: Price
    service_tier: str | None
    factor: float  # the model's tokens per estimated token

    def usage(self, units: int) -> Usage:
        """The usage of the prompt and of the delivered units."""
        return structs.replace(self.prompt, out_text=tokens_of(units, factor=self.factor), estimated=False)

    def entry(self, units: int) -> Entry:
        """The settlement of the call after it delivered `units`."""
        usage = self.usage(units)
        amount = min(self.price.cost(usage, service_tier=self.service_tier), MAX_AMOUNT)
        meta = msgspec.json.encode(structs.replace(self.meta, usage=usage)).decode()
        tokens = usage.tokens_in + usage.tokens_out
        return Entry(self.account, self.request_id, self.key_id, "use", -amount, tokens, self.at, meta)


def encode_admitted(account: str, request_id: str, key_id: str) -> bytes:
    """The stored form of a call that has delivered nothing yet."""
    return _encoder.encode((account, request_id, key_id, None))


def encode_record(record: CheckpointRecord) -> bytes:
    """The stored form of a call that delivers."""
    r = record
    charge = (r.at, r.meta, r.prompt, r.price, r.service_tier, r.factor)
    return _encoder.encode((r.account, r.request_id, r.key_id, charge))


def decode_checkpoint(body: bytes) -> tuple[str, str, CheckpointRecord | None]:
    """Account, request_id and the record, or None if nothing was delivered. Other bytes raise msgspec's ValueErrors."""
    account, request_id, key_id, charge = _decoder.decode(body)
    return account, request_id, None if charge is None else CheckpointRecord(account, request_id, key_id, *charge)
