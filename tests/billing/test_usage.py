"""Usage: each token of whatever an upstream says lies in exactly one bucket, and nonsense is no usage."""

from __future__ import annotations

from typing import Any, cast

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.billing import usage as usage_module
from gateway.billing.usage import MAX_TOKENS, ImageCount, Usage, completion_usage, is_possible, text_units, tokens_of
from gateway.schemas.chat_response import (
    CacheWriteDetails,
    CompletionTokensDetails,
    CompletionUsage,
    PromptTokensDetails,
)
from tests.quick import examples

COUNTS = st.integers(0, 2000)
WILD = st.integers(-5000, 5000)


def read(**document: Any) -> Usage:
    usage = completion_usage(document)
    assert usage is not None
    return Usage.of_chat(usage)


def buckets(usage: Usage) -> dict[str, Any]:
    return msgspec.to_builtins(usage)


@pytest.mark.holds("prices.md#what-is-charged-1")
@settings(max_examples=examples(500))
@given(COUNTS, COUNTS, st.tuples(*[COUNTS] * 6), st.tuples(COUNTS, COUNTS, COUNTS))
def test_buckets_add_up_to_the_totals(
    prompt: int, completion: int, inside: tuple[int, ...], outside: tuple[int, ...]
) -> None:
    cached, audio, write, image, long, cached_audio = inside
    document = {
        "cached_audio_tokens": cached_audio,
        "prompt_tokens": prompt + 1,
        "completion_tokens": completion,
        "prompt_tokens_details": {
            "cached_tokens": cached,
            "audio_tokens": audio,
            "cache_write_tokens": write,
            "image_tokens": image,
            "cache_write_tokens_details": {"ttl_12h_tokens": long},
        },
        "completion_tokens_details": {
            "reasoning_tokens": outside[0],
            "audio_tokens": outside[1],
            "image_tokens": outside[2],
        },
    }
    usage = read(**document)
    assert (usage.tokens_in, usage.tokens_out) == (prompt + 1, completion)
    assert usage.in_cached + usage.in_audio_cached == min(cached, prompt + 1)
    assert usage.in_audio_cached <= min(audio, cached_audio)
    assert usage.out_reasoning == min(outside[0], completion)
    assert all(value >= 0 for value in buckets(usage).values())


@pytest.mark.holds("prices.md#what-is-charged-10")
@settings(max_examples=examples(500))
@given(WILD, WILD, st.tuples(*[WILD] * 6), st.tuples(WILD, WILD, WILD))
def test_usage_buckets_of_false_counts_are_never_negative(
    prompt: int, completion: int, inside: tuple[int, ...], outside: tuple[int, ...]
) -> None:
    lie = CompletionUsage(
        prompt_tokens=prompt,
        completion_tokens=completion,
        prompt_tokens_details=PromptTokensDetails(  # type: ignore[misc]
            *cast("Any", inside[:4]), cache_write_tokens_details=CacheWriteDetails(ttl_12h_tokens=inside[4])
        ),
        completion_tokens_details=CompletionTokensDetails(outside[0], outside[1], image_tokens=outside[2]),
        cached_audio_tokens=inside[5],
    )
    usage = Usage.of_chat(lie)
    assert (usage.tokens_in, usage.tokens_out) == (max(prompt, 0), max(completion, 0))
    assert all(value >= 0 for value in buckets(usage).values())


def test_every_detail_has_its_bucket() -> None:
    usage = read(
        prompt_tokens=100,
        completion_tokens=50,
        prompt_tokens_details={
            "cached_tokens": 10,
            "cache_write_tokens": 20,
            "cache_write_tokens_details": {"ttl_30m_tokens": 15, "ttl_12h_tokens": 5},
            "audio_tokens": 30,
            "image_tokens": 7,
        },
        completion_tokens_details={"reasoning_tokens": 8, "audio_tokens": 12, "image_tokens": 9},
        web_searches=3,
        search_units=2,
    )
    assert buckets(usage) == {
        "in_text": 33,
        "in_cached": 10,
        "in_cache_write_short": 15,
        "in_cache_write_long": 5,
        "in_audio": 30,
        "in_image": 7,
        "out_text": 21,
        "out_reasoning": 8,
        "out_audio": 12,
        "out_image": 9,
        "web_searches": 3,
        "search_units": 2,
    }


def test_audio_from_the_cache_has_its_own_bucket() -> None:
    details = {"cached_tokens": 800, "audio_tokens": 950}
    usage = read(prompt_tokens=1000, prompt_tokens_details=details, cached_audio_tokens=790)
    assert buckets(usage) == {"in_text": 40, "in_cached": 10, "in_audio": 160, "in_audio_cached": 790}
    usage = read(prompt_tokens=1000, prompt_tokens_details=details)  # then as much text as there is was cached
    assert buckets(usage) == {"in_cached": 800, "in_audio": 200}


def test_deepseeks_cache_hits_are_cached_tokens() -> None:
    usage = read(prompt_tokens=100, completion_tokens=1, prompt_cache_hit_tokens=60, prompt_cache_miss_tokens=40)
    assert (usage.in_text, usage.in_cached) == (40, 60)


def test_total_of_the_upstream_is_not_used() -> None:
    usage = completion_usage({"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 10**6})
    assert usage is not None
    assert usage.total_tokens == 7


@pytest.mark.holds("prices.md#counts-of-upstreams-2")
@pytest.mark.parametrize(
    "document",
    [
        {},
        {"prompt_tokens": 0, "completion_tokens": 0},
        {"prompt_tokens": -1, "completion_tokens": 5},
        {"prompt_tokens": MAX_TOKENS + 1, "completion_tokens": 5},
        {"prompt_tokens": 10**400, "completion_tokens": 5},
        {"prompt_tokens": "12", "completion_tokens": 5},
        {"prompt_tokens": True, "completion_tokens": 5},
        {"prompt_tokens": float("nan"), "completion_tokens": 5},
        {"prompt_tokens": float("inf"), "completion_tokens": 5},
        {"prompt_tokens": [1], "completion_tokens": 5},
        {"prompt_tokens": 5, "completion_tokens": 5, "prompt_tokens_details": {"cached_tokens": -3}},
        {"prompt_tokens": 5, "completion_tokens": 5, "completion_tokens_details": {"reasoning_tokens": "3"}},
        {"prompt_tokens": 5, "prompt_tokens_details": {"cache_write_tokens_details": {"ttl_12h_tokens": -1}}},
    ],
)
def test_invalid_usage_is_ignored(document: dict[str, Any]) -> None:
    assert completion_usage(document) is None


@pytest.mark.parametrize("raw", [b"", b"null", b"[]", b"7", b'"x"', b"{", b"[" * 100_000])
def test_usage_that_is_not_an_object_is_ignored(raw: bytes) -> None:
    assert completion_usage(raw) is None


@pytest.mark.slow
@given(st.recursive(st.none() | st.booleans() | st.integers() | st.floats() | st.text(), lambda inner: st.lists(inner)))
def test_any_value_of_any_detail_is_read_or_refused_but_never_raises(value: Any) -> None:
    for name in ("prompt_tokens", "prompt_tokens_details", "completion_tokens_details", "prompt_cache_hit_tokens"):
        usage = completion_usage({"prompt_tokens": 3, "completion_tokens": 4, name: value})
        assert usage is None or min(usage.prompt_tokens, usage.completion_tokens) >= 0


def test_counts_that_come_as_floats_are_rounded() -> None:
    assert read(prompt_tokens=3.0, completion_tokens=4.4).tokens_out == 4


@pytest.mark.holds("prices.md#what-is-charged-19")
def test_cost_reported_by_openrouter_is_stored_in_nano_dollars() -> None:
    assert read(prompt_tokens=15, completion_tokens=11, cost=0.0000217).provider_cost == 21_700
    assert read(prompt_tokens=15, completion_tokens=11, cost=0).provider_cost == 0
    assert read(prompt_tokens=15, completion_tokens=11).provider_cost is None


def test_seconds_counted_by_mistral_are_stored() -> None:
    assert read(prompt_tokens=375, completion_tokens=5, prompt_audio_seconds=30).audio_seconds_in == 30
    assert read(prompt_tokens=375, completion_tokens=5, prompt_audio_seconds=None).audio_seconds_in == 0


@pytest.mark.parametrize("value", [None, "7", True, -1, float("nan"), float("inf"), 10**400, 1e300, {}, [1]])
def test_invalid_details_do_not_affect_the_counts(value: Any) -> None:
    read_ = read(prompt_tokens=15, completion_tokens=11, cost=value, prompt_audio_seconds=value)
    plugin = Usage.of_chat(CompletionUsage(15, 11, 26, provider_cost=value, audio_seconds=value))
    assert buckets(read_) == buckets(plugin) == {"in_text": 15, "out_text": 11}


@pytest.mark.holds("prices.md#what-is-charged-19")
def test_usage_fields_of_the_record_are_not_shown_to_callers() -> None:
    told = CompletionUsage(
        15, 11, 26, provider_cost=0, audio_seconds=2.5, cached_audio_tokens=1, web_searches=2, search_units=3
    )
    assert msgspec.json.encode(told.public()) == msgspec.json.encode(CompletionUsage(15, 11, 26))
    plain = CompletionUsage(15, 11, 26)
    assert plain.public() is plain


def test_images_are_in_the_record_of_a_call() -> None:
    form = buckets(Usage(images=ImageCount(2, "1024x1024", "hd")))
    assert form == {"images": {"count": 2, "size": "1024x1024", "quality": "hd"}}


# Text ----------------------------------------------------------------------------------------------------------------


@pytest.mark.holds("prices.md#estimates-2")
@pytest.mark.parametrize(
    ("text", "tokens"),
    [("", 0), ("abcd", 1), ("abcde", 2), ("привет", 3), ("漢字かな", 4), ("한글", 2), ("😀", 2), ("\ud800", 1)],
)
def test_text_is_estimated_by_the_class_of_its_characters(text: str, tokens: int) -> None:
    assert tokens_of(text_units(text)) == tokens


@given(st.text(st.characters(codec=None, exclude_categories=[])), st.text())
def test_estimates_add_up(one: str, other: str) -> None:
    assert text_units(one) + text_units(other) == text_units(one + other)


@pytest.mark.holds("operations/audit.md#late-and-uncollected-3", "prices.md#estimates-2")
def test_factor_of_a_model_family_scales_the_estimate() -> None:
    assert tokens_of(400, factor=1.15) == 115
    assert tokens_of(401, factor=1.5) == 151


COUNT = st.one_of(st.none(), st.integers(-2, 12), st.floats(0, 5), st.just(10**18), st.booleans(), st.just("x"))


@given(
    st.fixed_dictionaries(
        {},
        optional={
            "prompt_tokens": COUNT,
            "completion_tokens": COUNT,
            "total_tokens": COUNT,
            "prompt_tokens_details": st.one_of(
                st.none(), st.dictionaries(st.sampled_from(["cached_tokens", "audio_tokens", "odd"]), COUNT)
            ),
            "completion_tokens_details": st.one_of(
                st.none(), st.dictionaries(st.sampled_from(["reasoning_tokens", "audio_tokens", "odd"]), COUNT)
            ),
        },
    )
)
def test_fast_decoding_of_plain_usage_equals_the_full_decoding(document: dict[str, Any]) -> None:
    quick = usage_module._plain_usage(document)
    if quick is not None:
        assert quick == usage_module._read_usage(document)


# What a plugin hands over --------------------------------------------------------------------------------------------

BEYOND = st.one_of(st.none(), COUNTS)


@pytest.mark.holds("prices.md#what-is-charged-10")
@settings(max_examples=examples(500))
@given(COUNTS, COUNTS, st.tuples(*[BEYOND] * 7), st.tuples(*[BEYOND] * 6))
def test_counts_shown_to_a_caller_are_parts_of_their_totals(
    prompt: int, completion: int, inside: tuple[int | None, ...], outside: tuple[int | None, ...]
) -> None:
    cached, audio, write, image, text, short, long = inside
    parts = {"cached_tokens": cached, "audio_tokens": audio, "cache_write_tokens": write, "image_tokens": image}
    lives = {"ttl_30m_tokens": short or 0, "ttl_12h_tokens": long or 0}
    made = msgspec.convert(
        {
            "prompt_tokens": prompt,
            "completion_tokens": completion,
            "total_tokens": 5,
            "prompt_tokens_details": {
                **_given({**parts, "text_tokens": text}),
                **({"cache_write_tokens_details": lives} if write is not None else {}),
            },
            "completion_tokens_details": _given(dict(zip(OUTPUT_PARTS, outside, strict=True))),
        },
        CompletionUsage,
    )
    shown = msgspec.to_builtins(made.public())
    assert (shown["prompt_tokens"], shown["completion_tokens"]) == (prompt, completion)
    assert shown["total_tokens"] == prompt + completion
    inner, outer = shown["prompt_tokens_details"], shown["completion_tokens_details"]
    assert inner["cached_tokens"] + inner.get("cache_write_tokens", 0) <= prompt
    assert inner["audio_tokens"] + inner.get("image_tokens", 0) + inner.get("text_tokens", 0) <= prompt
    if write is not None:
        assert sum(inner["cache_write_tokens_details"].values()) <= inner["cache_write_tokens"]
    kinds = ("reasoning_tokens", "audio_tokens", "image_tokens", "text_tokens")
    assert sum(outer.get(name, 0) for name in kinds) <= completion
    assert Usage.of_chat(made) == Usage.of_chat(made.public())


OUTPUT_PARTS = (
    "reasoning_tokens",
    "audio_tokens",
    "image_tokens",
    "text_tokens",
    "accepted_prediction_tokens",
    "rejected_prediction_tokens",
)


def _given(counts: dict[str, int | None]) -> dict[str, int]:
    return {name: count for name, count in counts.items() if count is not None}


@pytest.mark.parametrize("value", [-5, "7", None, 1.5, 10**12])
@pytest.mark.parametrize("name", OUTPUT_PARTS[2:])
def test_impossible_count_of_a_plugin_makes_its_usage_impossible(name: str, value: Any) -> None:
    usage = CompletionUsage(20, 10, 30)
    setattr(usage.completion_tokens_details, name, value)
    assert not is_possible(usage)


@pytest.mark.holds("prices.md#what-is-charged-13")
@pytest.mark.parametrize("value", [None, "7", True, -1, 1.5, float("nan"), 10**400, 1001, {}, [1]])
@pytest.mark.parametrize("name", ["web_searches", "search_units"])
def test_impossible_number_of_searches_leaves_the_counts(name: str, value: Any) -> None:
    usage = CompletionUsage(15, 11, 26)
    setattr(usage, name, value)
    assert buckets(Usage.of_chat(usage)) == {"in_text": 15, "out_text": 11}
    setattr(usage, name, 1000)
    assert buckets(Usage.of_chat(usage))[name] == 1000
