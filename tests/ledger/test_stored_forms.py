"""Bytes that are stored outlive a release: the meta of ledger lines, checkpoint files and journals."""

import msgspec
import pytest
from msgspec import Struct, structs

from gateway.billing.price import Price
from gateway.billing.usage import ImageCount, Usage
from gateway.errors.attempt_answer import AttemptAnswer
from gateway.ledger import Hold, LedgerLine
from gateway.ledger.api_key import ApiKey
from gateway.ledger.checkpoint_record import encode_admitted, read_checkpoint
from gateway.ledger.entry import Entry
from gateway.ledger.inflight_checkpoint import ROOM
from gateway.ledger.line_meta import LineMeta, reclaim_meta, settled_meta, superseded_meta
from tests.ledger.records import quote_of, record_of, stream_of
from tests.ledger.test_inflight_checkpoint import PRICE, PROMPT

KEY = ApiKey("acme", "key_x")
AT = 1764000000000000  # µs


def hold_of(amount: int = 0, version: str = "") -> Hold:
    return Hold("r1", KEY, "m", amount, None, AT, version)


def test_meta_of_a_line_with_all_fields_is_stored_in_its_layout():
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


def test_usage_in_the_meta_has_all_fields_in_order():
    usage = Usage(
        requests=2, in_text=3, in_cached=4, in_cache_write_short=5, in_cache_write_long=6, in_audio=7,
        in_audio_cached=8, in_image=9, out_text=10, out_reasoning=11, out_audio=12, out_image=13,
        images=ImageCount(14, "1024x1024", "hd"), characters=15, audio_seconds_in=1.5, audio_seconds_out=2.5,
        search_units=16, web_searches=17, provider_cost=18,
    )  # fmt: skip
    assert settled_meta(hold_of(), record_of(1, usage=usage, attempts=0), clamped=False) == (
        '{"key":"key_x","model":"m","usage":{"requests":2,"in_text":3,"in_cached":4,"in_cache_write_short":5,'
        '"in_cache_write_long":6,"in_audio":7,"in_audio_cached":8,"in_image":9,"out_text":10,"out_reasoning":11,'
        '"out_audio":12,"out_image":13,"images":{"count":14,"size":"1024x1024","quality":"hd"},"characters":15,'
        '"audio_seconds_in":1.5,"audio_seconds_out":2.5,"search_units":16,"web_searches":17,"provider_cost":18}}'
    )


def test_meta_of_a_minimal_line_is_stored_in_its_layout():
    record = record_of(0, attempts=0, served_model="m")
    assert settled_meta(hold_of(), record, clamped=False) == '{"key":"key_x","model":"m","usage":{}}'
    unused = record_of(0, attempts=0, usage=Usage(requests=0))
    assert settled_meta(hold_of(), unused, clamped=False) == '{"key":"key_x","model":"m","usage":{"requests":0}}'


def test_meta_of_a_reclaim_is_stored_in_its_layout():
    assert reclaim_meta(KEY, quote_of(5000, version="v7")) == (
        '{"key":"key_x","model":"m","estimated":true,"price":"v7","hold":5000,"reclaimed":true}'
    )
    assert reclaim_meta(KEY, quote_of(0)) == '{"key":"key_x","model":"m","estimated":true,"reclaimed":true}'


def test_meta_has_the_factor_of_the_price_and_the_upstream_cost_at_its_end():
    hold = structs.replace(hold_of(), price_factor="1.37")
    record = structs.replace(record_of(0, attempts=0, served_model="m"), upstream_cost=0)
    assert settled_meta(hold, record, clamped=False) == (
        '{"key":"key_x","model":"m","usage":{},"price_factor":"1.37","upstream_cost":0}'
    )
    quote = quote_of(version="v7")
    assert reclaim_meta(KEY, structs.replace(quote, price=quote.price.times(500_000_000))) == (
        '{"key":"key_x","model":"m","estimated":true,"price":"v7","hold":1000,"reclaimed":true,"price_factor":"0.5"}'
    )


def test_meta_of_a_refund_is_stored_in_its_layout():
    assert superseded_meta(KEY, "m") == b'{"key":"key_x","model":"m","outcome":"superseded"}'


NAMES = ("acme", "r1", "key_x")
ADMITTED = b"\x94\xa4acme\xa2r1\xa5key_x\xc0"
DELIVERS = bytes.fromhex(
    "94a461636d65a27231a56b65795f78960185a36b6579a56b65795f78a56d6f64656ca16da870726f7669646572a170a9657374696d61746564c3"
    "a76f7574636f6d65ab776f726b65725f64696564de0002a7696e5f746578740aa9657374696d61746564c3de0005a776657273696f6ea27631a5"
    "696e707574ce001e8480a66f7574707574ce007a1200ab7065725f7265717565737407b7736572766963655f746965725f6d756c7469706c6965"
    "7281a466617374920302a466617374cb3ff8000000000000"
)


def test_checkpoint_of_a_call_is_one_array_with_a_nested_one():
    body = stream_of(Hold("r1", KEY, "m", 0, None, 1), PRICE, PROMPT, provider="p", service_tier="fast", factor=1.5)
    stored = msgspec.msgpack.decode(DELIVERS)  # of the version before the tier was stored
    stored[3][1]["service_tier"] = "fast"
    assert (encode_admitted(*NAMES), msgspec.msgpack.decode(body)) == (ADMITTED, stored)
    assert read_checkpoint(body, 40)[2].amount == read_checkpoint(DELIVERS, 40)[2].amount
    assert read_checkpoint(ADMITTED, 40) == ("acme", "r1", None)
    meta = (
        '{"key":"key_x","model":"m","provider":"p","usage":{"in_text":10,"out_text":15},"estimated":true,'
        '"outcome":"worker_died"}'
    )
    assert read_checkpoint(DELIVERS, 40) == ("acme", "r1", Entry(*NAMES, "use", -221, 25, 1, meta))


@pytest.mark.parametrize("tier", [None, "fast", "other"])
def test_checkpoint_of_a_price_with_a_factor_is_charged_alike_by_the_version_before(tier: str | None):
    price = structs.replace(PRICE, minimum=3).times(1_370_000_000)
    hold = structs.replace(Hold("r1", KEY, "m", 0, None, 1), price_factor="1.37")
    body = stream_of(hold, price, PROMPT, service_tier=tier, factor=1.5)
    assert "factor" not in msgspec.msgpack.decode(body)[3][3]  # the version before knows no other field
    entry = read_checkpoint(body, 40)[2]
    usage = structs.replace(PROMPT, out_text=15)
    assert -entry.amount == price.cost(usage, service_tier=tier) > PRICE.cost(usage, service_tier=tier)
    assert msgspec.json.decode(entry.meta)["price_factor"] == "1.37"


@pytest.mark.holds("prices.md#cost-prices-2")
def test_checkpoint_with_a_cost_price_has_the_cost_on_its_line_and_is_read_by_the_version_before():
    hold = Hold("r1", KEY, "m", 0, None, 1)
    cost_price = structs.replace(PRICE, output=PRICE.output * 2, version="of the operator", held=PRICE)
    body = stream_of(hold, PRICE, PROMPT, provider="p", factor=1.5, cost_price=cost_price)
    entry = read_checkpoint(body, 40)[2]
    paid = cost_price.cost(structs.replace(PROMPT, out_text=15))
    assert msgspec.json.decode(entry.meta)["upstream_cost"] == paid > -entry.amount
    assert "cost_price" not in entry.meta
    # The version before skips the unknown key of the meta, and finds all else in its place.
    before = tuple[str, str, str, tuple[int, LineMeta, Usage, Price, str | None, float] | None]
    assert msgspec.msgpack.decode(body, type=before)[3][1].provider == "p"
    assert read_checkpoint(stream_of(hold, PRICE, PROMPT, provider="p", factor=1.5), 40)[2].amount == entry.amount
    long = stream_of(hold, PRICE, PROMPT, provider="p" * 700, cost_price=cost_price)
    assert len(long) < ROOM and "upstream_cost" not in read_checkpoint(long, 40)[2].meta


ANSWERS = (AttemptAnswer("p", "m", "slow_down", 429, 12), AttemptAnswer("q", "m", "ok", 200, 340))


def test_meta_has_what_attempts_answered_at_its_end():
    record = structs.replace(record_of(0, attempts=2, served_model="m"), upstream_cost=0, answers=ANSWERS)
    assert settled_meta(hold_of(), record, clamped=False) == (
        '{"key":"key_x","model":"m","usage":{},"attempts":2,"upstream_cost":0,"answers":['
        '{"provider":"p","model":"m","code":"slow_down","status":429,"ms":12},'
        '{"provider":"q","model":"m","code":"ok","status":200,"ms":340}]}'
    )
    assert "answers" not in settled_meta(hold_of(), structs.replace(record, answers=None), clamped=False)


@pytest.mark.parametrize("cost_price", [None, PRICE], ids=["no cost price", "cost price"])
def test_checkpoint_has_what_attempts_answered_and_is_read_by_the_version_before(cost_price: Price | None):
    hold = Hold("r1", KEY, "m", 0, None, 1)
    died = (ANSWERS[0], structs.replace(ANSWERS[1], code="worker_died"))
    body = stream_of(hold, PRICE, PROMPT, provider="q", factor=1.5, cost_price=cost_price, answers=died)
    entry = read_checkpoint(body, 40)[2]
    meta = msgspec.json.decode(entry.meta, type=LineMeta)
    assert (meta.answers, meta.upstream_cost is None) == (died, cost_price is None)
    before = tuple[str, str, str, tuple[int, _MetaBefore, Usage, Price, str | None, float] | None]
    assert msgspec.msgpack.decode(body, type=before)[3][1].provider == "q"
    assert read_checkpoint(stream_of(hold, PRICE, PROMPT, provider="q", factor=1.5), 40)[2].amount == entry.amount
    # First the answers are left out where a slot might not have the room, then the cost.
    long = stream_of(hold, PRICE, PROMPT, provider="q" * 500, cost_price=cost_price, answers=died * 3)
    left = msgspec.json.decode(read_checkpoint(long, 40)[2].meta, type=LineMeta)
    assert len(long) < ROOM and (left.answers, left.upstream_cost is None) == (None, cost_price is None)


class _MetaBefore(Struct):
    """The part of the meta that the version before reads of the stream's target."""

    key: str
    model: str
    provider: str = ""


FULL_PROMPT = Usage(
    in_text=1, in_cached=2, in_cache_write_short=3, in_cache_write_long=4, in_audio=5, in_audio_cached=6, in_image=7,
    search_units=8, web_searches=9, estimated=True,
)  # fmt: skip
FULL_PRICE = Price(
    version="v7", effective_from=1, input=2, cached_input=3, cache_write=4, cache_write_long=5, output=6, reasoning=7,
    audio_input=8, audio_output=9, image_input=10, image_output=11, per_character=12, per_second_in=13,
    per_second_out=14, per_request=15, per_search_unit=16, per_web_search=17, minimum=18,
    service_tier_multiplier={"fast": (3, 2)},
)  # fmt: skip


FULL = bytes.fromhex(
    "94a461636d65a27231a56b65795f7896cf00064459416240008aa36b6579a56b65795f78a56d6f64656ca16da870726f7669646572a66f7065"
    "6e6169a8757073747265616daa6770742d352d6d696e69a9657374696d61746564c3a8617474656d70747302a76f7574636f6d65ab776f726b"
    "65725f64696564a57072696365a27637a4686f6c64cd1388ac7365727665645f6d6f64656ca866616c6c6261636bde000aa7696e5f74657874"
    "01a9696e5f63616368656402b4696e5f63616368655f77726974655f73686f727403b3696e5f63616368655f77726974655f6c6f6e6704a869"
    "6e5f617564696f05af696e5f617564696f5f63616368656406a8696e5f696d61676507ac7365617263685f756e69747308ac7765625f736561"
    "726368657309a9657374696d61746564c3de0014a776657273696f6ea27637ae6566666563746976655f66726f6d01a5696e70757402ac6361"
    "636865645f696e70757403ab63616368655f777269746504b063616368655f77726974655f6c6f6e6705a66f757470757406a9726561736f6e"
    "696e6707ab617564696f5f696e70757408ac617564696f5f6f757470757409ab696d6167655f696e7075740aac696d6167655f6f7574707574"
    "0bad7065725f6368617261637465720cad7065725f7365636f6e645f696e0dae7065725f7365636f6e645f6f75740eab7065725f7265717565"
    "73740faf7065725f7365617263685f756e697410ae7065725f7765625f73656172636811a76d696e696d756d12b7736572766963655f746965"
    "725f6d756c7469706c69657281a466617374920302a466617374cb3ff8000000000000"
)


def test_every_field_of_a_stream_s_checkpoint_has_its_place():
    meta = {
        "key": "key_x",
        "model": "m",
        "provider": "openai",
        "upstream": "gpt-5-mini",
        "estimated": True,
        "attempts": 2,
        "outcome": "worker_died",
        "price": "v7",
        "hold": 5000,
        "served_model": "fallback",
    }
    prompt = {
        "in_text": 1,
        "in_cached": 2,
        "in_cache_write_short": 3,
        "in_cache_write_long": 4,
        "in_audio": 5,
        "in_audio_cached": 6,
        "in_image": 7,
        "search_units": 8,
        "web_searches": 9,
        "estimated": True,
    }
    price = {
        "version": "v7",
        "effective_from": 1,
        "input": 2,
        "cached_input": 3,
        "cache_write": 4,
        "cache_write_long": 5,
        "output": 6,
        "reasoning": 7,
        "audio_input": 8,
        "audio_output": 9,
        "image_input": 10,
        "image_output": 11,
        "per_character": 12,
        "per_second_in": 13,
        "per_second_out": 14,
        "per_request": 15,
        "per_search_unit": 16,
        "per_web_search": 17,
        "minimum": 18,
        "service_tier_multiplier": {"fast": [3, 2]},
    }
    stored = msgspec.msgpack.decode(FULL)
    assert stored == [*NAMES, [AT, meta, prompt, price, "fast", 1.5]]
    assert [list(fields) for fields in stored[3][1:4]] == [list(meta), list(prompt), list(price)]
    body = stream_of(
        hold_of(5000, "v7"),
        structs.replace(FULL_PRICE, per_image={"*": {"*": 19}}, held=FULL_PRICE),  # not stored: unused by streams
        FULL_PROMPT,
        provider="openai",
        upstream="gpt-5-mini",
        attempts=2,
        served_model="fallback",
        service_tier="fast",
        factor=1.5,
        endpoint="chat",
    )
    stored[3][1] |= {"endpoint": "chat", "service_tier": "fast"}  # not stored by the version before
    assert msgspec.msgpack.decode(body) == stored
    assert list(msgspec.msgpack.decode(body)[3][1]) == list(stored[3][1])
    entry = Entry(
        *NAMES,
        "use",
        -445,
        28 + 15,
        AT,
        '{"key":"key_x","model":"m","provider":"openai","upstream":"gpt-5-mini","usage":{"in_text":1,"in_cached":2,'
        '"in_cache_write_short":3,"in_cache_write_long":4,"in_audio":5,"in_audio_cached":6,"in_image":7,"out_text":15,'
        '"search_units":8,"web_searches":9},"estimated":true,"attempts":2,"outcome":"worker_died","price":"v7",'
        '"hold":5000,"served_model":"fallback"}',
    )
    assert read_checkpoint(FULL, 40) == ("acme", "r1", entry)


def test_line_of_an_archive_file_is_one_object():
    line = LedgerLine("acme", "1764000000000-0", 7, "r1", "use", -5, 10, '{"key":"key_x"}', "ab")
    stored = (
        b'{"account":"acme","id":"1764000000000-0","n":7,"rid":"r1","kind":"use","amount":-5,"balance":10,'
        b'"meta":"{\\"key\\":\\"key_x\\"}","hash":"ab"}'
    )
    assert line.meta == {"key": "key_x"}
    assert msgspec.json.encode(line) == stored
    short = structs.replace(line, uncollected=3, late=True)
    assert msgspec.json.encode(short) == stored.removesuffix(b"}") + b',"uncollected":3,"late":true}'
    assert msgspec.json.decode(msgspec.json.encode(short), type=LedgerLine) == short
    assert len({short.chained(""), line.chained(""), structs.replace(short, late=False).chained("")}) == 3
    assert msgspec.json.decode(stored, type=LedgerLine) == line
    assert line.chained("") == "998b6ef1005eaf0b3429af6b80f251a38b8b67efc1374fd6b7db23f064b9af66"


class _LineBefore(Struct, forbid_unknown_fields=True):
    """A line of an archive as the version before reads it."""

    account: str
    id: str
    n: int
    rid: str
    kind: str
    amount: int
    balance: int
    meta: str
    hash: str = ""


@pytest.mark.holds("operations/audit.md#audit-24")
def test_line_of_an_archive_is_readable_by_the_version_before_unless_it_is_uncollected_or_late():
    line = LedgerLine("acme", "1-1", 2, "r1", "use", -5, 5, "{}", "aa")
    assert msgspec.json.decode(msgspec.json.encode(line), type=_LineBefore).amount == -5
    for short in (structs.replace(line, uncollected=3), structs.replace(line, late=True)):
        with pytest.raises(msgspec.ValidationError, match="unknown field"):
            msgspec.json.decode(msgspec.json.encode(short), type=_LineBefore)
