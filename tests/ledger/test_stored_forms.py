"""Bytes that are stored outlive a release: the meta of ledger lines, checkpoint files and journals."""

import msgspec

from gateway.billing.usage import Usage
from gateway.ledger import Hold, LedgerLine
from gateway.ledger.api_key import ApiKey
from gateway.ledger.checkpoint_record import CheckpointRecord, decode_checkpoint, encode_admitted, encode_record
from gateway.ledger.line_meta import reclaim_meta, settled_meta
from tests.ledger.records import quote_of, record_of
from tests.ledger.test_inflight_checkpoint import META, PRICE, PROMPT

KEY = ApiKey("acme", "key_x")
AT = 1764000000000000  # µs


def hold_of(amount: int = 0, version: str = "") -> Hold:
    return Hold("r1", KEY, "m", amount, None, AT, version)


def test_meta_of_a_line_with_all_fields():
    usage = Usage(in_text=812, in_cached=3, out_text=204, provider_cost=99, estimated=True)
    record = record_of(
        1,
        provider="openai",
        upstream_model="gpt-5-mini",
        usage=usage,
        attempts=2,
        outcome="ok",
        served_model="fallback",
    )
    assert settled_meta(hold_of(5000, "v7"), record, clamped=True) == (
        '{"key":"key_x","model":"m","provider":"openai","upstream":"gpt-5-mini","usage":{"in_text":812,"in_cached":3,'
        '"out_text":204,"provider_cost":99},"estimated":true,"attempts":2,"outcome":"ok","price":"v7","hold":5000,'
        '"clamped":true,"served_model":"fallback"}'
    )


def test_meta_of_a_minimal_line():
    record = record_of(0, attempts=0, served_model="m")
    assert settled_meta(hold_of(), record, clamped=False) == '{"key":"key_x","model":"m","usage":{}}'
    unused = record_of(0, attempts=0, usage=Usage(requests=0))
    assert settled_meta(hold_of(), unused, clamped=False) == '{"key":"key_x","model":"m","usage":{"requests":0}}'


def test_meta_of_a_reclaim():
    assert reclaim_meta(KEY, quote_of(5000, version="v7")) == (
        b'{"key":"key_x","model":"m","estimated":true,"price":"v7","hold":5000,"reclaimed":true}'
    )
    assert reclaim_meta(KEY, quote_of(0)) == b'{"key":"key_x","model":"m","estimated":true,"reclaimed":true}'


ADMITTED = b"\x94\xa4acme\xa2r1\xa5key_x\xc0"
DELIVERS = bytes.fromhex(
    "94a461636d65a27231a56b65795f78960185a36b6579a56b65795f78a56d6f64656ca16da870726f7669646572a170a9657374696d61746564c3"
    "a76f7574636f6d65ab776f726b65725f64696564de0002a7696e5f746578740aa9657374696d61746564c3de0005a776657273696f6ea27631a5"
    "696e707574ce001e8480a66f7574707574ce007a1200ab7065725f7265717565737407b7736572766963655f746965725f6d756c7469706c6965"
    "7281a466617374920302a466617374cb3ff8000000000000"
)


def test_checkpoint_of_a_call_is_one_array_with_a_nested_one():
    record = CheckpointRecord("acme", "r1", "key_x", 1, META, PROMPT, PRICE, "fast", 1.5)
    assert (encode_admitted("acme", "r1", "key_x"), encode_record(record)) == (ADMITTED, DELIVERS)
    assert decode_checkpoint(ADMITTED) == ("acme", "r1", None)
    assert decode_checkpoint(DELIVERS) == ("acme", "r1", record)


def test_line_of_an_archive_file_is_one_object():
    line = LedgerLine("acme", "1764000000000-0", 7, "r1", "use", -5, 10, '{"key":"key_x"}', "ab")
    stored = (
        b'{"account":"acme","id":"1764000000000-0","n":7,"rid":"r1","kind":"use","amount":-5,"balance":10,'
        b'"meta":"{\\"key\\":\\"key_x\\"}","hash":"ab"}'
    )
    assert line.meta == {"key": "key_x"}
    assert msgspec.json.encode(line) == stored
    assert msgspec.json.decode(stored, type=LedgerLine) == line
    assert line.chained("") == "998b6ef1005eaf0b3429af6b80f251a38b8b67efc1374fd6b7db23f064b9af66"
