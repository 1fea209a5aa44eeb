"""Text to speech to text to vectors, all of it local; `tox -e minilm` runs it, for torch is heavy."""

from __future__ import annotations

import pytest
from openai import BadRequestError, OpenAI

from tests.roundtrip.roundtrip_speech import HEARD, SENTENCE, said


def dot(one: list[float], other: list[float]) -> float:
    return sum(a * b for a, b in zip(one, other, strict=True))


def test_transcribed_speech_has_a_similar_embedding(client: OpenAI) -> None:
    text = client.audio.transcriptions.create(model="local-stt", file=("said.mp3", said(client))).text
    assert text == HEARD
    answer = client.embeddings.create(
        model="local-embedding", input=[SENTENCE, text, "Herons stand still in the water for hours."]
    )
    written, heard, other = (entry.embedding for entry in answer.data)
    assert len(written) == 384
    assert dot(written, written) == pytest.approx(1.0, abs=1e-5)
    assert dot(written, heard) > 0.9
    assert dot(written, other) < 0.4
    assert answer.usage.prompt_tokens == answer.usage.total_tokens > 20


def test_floats_and_base64_are_the_same_numbers(client: OpenAI) -> None:
    packed = client.embeddings.create(model="local-embedding", input="heron").data[0].embedding
    plain = client.embeddings.create(model="local-embedding", input="heron", encoding_format="float").data[0].embedding
    assert packed == pytest.approx(plain, abs=1e-6)


def test_dimensions_are_honoured(client: OpenAI) -> None:
    answer = client.embeddings.create(model="local-embedding", input=["heron"] * 40, dimensions=128)
    assert {len(entry.embedding) for entry in answer.data} == {128}


def test_unsupported_request_to_a_model_is_a_caller_error(client: OpenAI) -> None:
    create = client.embeddings.create
    mistakes = {
        ("input", "unsupported_value"): lambda: create(model="local-embedding", input=[1, 2, 3]),
        ("input", "context_length_exceeded"): lambda: create(model="local-embedding", input="heron " * 400),
        ("dimensions", "invalid_value"): lambda: create(model="local-embedding", input="heron", dimensions=1024),
    }
    for expected, mistake in mistakes.items():
        with pytest.raises(BadRequestError) as caught:
            mistake()
        assert (caught.value.param, caught.value.code) == expected
