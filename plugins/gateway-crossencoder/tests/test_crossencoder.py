"""The conformance kit, and what is the model's own: meaning, lengths, refusals, a bounded queue, threads that end.

The model of the tests is made here: it counts the words that a query and a document share.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import onnx
import pytest
from gateway_crossencoder import CrossEncoderProvider
from onnx import TensorProto, helper, numpy_helper
from tokenizers import Tokenizer, models, pre_tokenizers, processors

from gateway import RerankAnswer, RerankRequest, Target, Timeouts
from gateway.errors import ContextLengthExceeded, UpstreamOverloaded, UpstreamTimeout
from gateway.testing import check_provider

TARGET = Target("ranker", "any")
WORDS = [
    "a",
    "at",
    "dawn",
    "five",
    "grey",
    "harbour",
    "heron",
    "herons",
    "in",
    "morning",
    "of",
    "over",
    "price",
    "river",
    "stock",
    "the",
    "tin",
    "water",
]
MAX_TOKENS = 32
Run = Callable[[Callable[[CrossEncoderProvider], Awaitable[Any]]], Any]


def tokenizer() -> Tokenizer:
    """Words are tokens; all others are unknown."""
    names = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *WORDS]
    made = Tokenizer(models.WordLevel({name: place for place, name in enumerate(names)}, unk_token="[UNK]"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    pair = "[CLS]:0 $A:0 [SEP]:0 $B:1 [SEP]:1"
    made.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair=pair, special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    return made


def network() -> onnx.ModelProto:
    """Σ over the words of (times in the query) x (times in the document), less one."""
    size = len(WORDS) + 4
    counted = np.zeros((size, 1), dtype=np.float32)
    counted[4:] = 1.0  # no special token counts
    constants = {
        "size": np.array(size, dtype=np.int64),
        "values": np.array([0, 1], dtype=np.float32),
        "counted": counted,
        "one": np.array(1, dtype=np.float32),
        "last": np.array([2], dtype=np.int64),
        "second": np.array([1], dtype=np.int64),
    }
    make = helper.make_node
    nodes = [
        make("OneHot", ["input_ids", "size", "values"], ["words"]),
        make("Cast", ["token_type_ids"], ["types"], to=TensorProto.FLOAT),
        make("Unsqueeze", ["types", "last"], ["is_document"]),
        make("Sub", ["one", "is_document"], ["is_query"]),
        make("Mul", ["words", "is_document"], ["of_document"]),
        make("Mul", ["words", "is_query"], ["of_query"]),
        make("ReduceSum", ["of_document", "second"], ["in_document"], keepdims=0),
        make("ReduceSum", ["of_query", "second"], ["in_query"], keepdims=0),
        make("Mul", ["in_document", "in_query"], ["both"]),
        make("MatMul", ["both", "counted"], ["shared"]),
        make("Sub", ["shared", "one"], ["logits"]),
    ]
    shape = ["pairs", "tokens"]
    inputs = [helper.make_tensor_value_info(name, TensorProto.INT64, shape) for name in ("input_ids", "token_type_ids")]
    outputs = [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["pairs", 1])]
    kept = [numpy_helper.from_array(array, name) for name, array in constants.items()]
    graph = helper.make_graph(nodes, "overlap", inputs, outputs, kept)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model as an operator has it."""
    made = tmp_path_factory.mktemp("model")
    tokenizer().save(str(made / "tokenizer.json"))
    onnx.save(network(), str(made / "model.onnx"))
    return made


@pytest.fixture(scope="module")
def run(folder: Path) -> Iterator[Run]:
    """One provider for all tests, with room for two calls."""
    options = CrossEncoderProvider.Options(str(folder), max_tokens=MAX_TOKENS, queue=1, batch=4)
    provider = CrossEncoderProvider(options, None)  # type: ignore[arg-type]
    with asyncio.Runner() as runner:
        runner.run(provider.start())

        def inside(test: Callable[[CrossEncoderProvider], Awaitable[Any]]) -> Any:
            async def called() -> Any:
                return await test(provider)

            return runner.run(called())

        yield inside
        runner.run(provider.close())
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("crossencoder")]


def asked(query: str, documents: list[str], **fields: Any) -> RerankRequest:
    return msgspec.convert({"model": "m", "query": query, "documents": documents, **fields}, RerankRequest)


def ranked(answer: RerankAnswer) -> list[int]:
    """The places of the documents, the best one first."""
    return [result.index for result in sorted(answer.results, key=lambda result: -result.relevance_score)]


def test_provider_conforms(folder: Path) -> None:
    check_provider(CrossEncoderProvider, options={"model": str(folder)})


def test_gateway_finds_the_plugin_by_its_entry_point() -> None:
    (point,) = entry_points(group="gateway", name="crossencoder")
    assert point.load().CrossEncoderProvider is CrossEncoderProvider


def test_documents_are_ranked_by_the_model(run: Run) -> None:
    documents = ["the price of tin", "a grey heron in the water", "five grey herons at dawn", "stock"]
    answer = run(lambda provider: provider.rerank(asked("grey herons at dawn", documents), TARGET))
    assert ranked(answer)[:2] == [2, 1]
    assert answer.results[2].relevance_score == pytest.approx(1 / (1 + np.exp(-3.0)))  # four words less one
    assert answer.results[3].relevance_score == pytest.approx(1 / (1 + np.exp(1.0)))


def test_scores_of_a_model_stay_its_own_without_sigmoid(folder: Path) -> None:
    async def ask() -> list[float]:
        provider = CrossEncoderProvider(CrossEncoderProvider.Options(str(folder), sigmoid=False), None)  # type: ignore[arg-type]
        await provider.start()
        answer = await provider.rerank(asked("grey herons", ["grey herons", "tin"]), TARGET)
        await provider.close()
        return [result.relevance_score for result in answer.results]

    assert asyncio.run(ask()) == [1.0, -1.0]


def test_documents_of_several_batches_have_the_scores_that_they_have_alone(run: Run) -> None:
    documents = [" ".join(WORDS[: 1 + number % 7]) for number in range(11)]
    together = run(lambda provider: provider.rerank(asked("a at dawn five grey", documents), TARGET))
    for number in (0, 3, 4, 10):
        request = asked("a at dawn five grey", [documents[number]])
        [alone] = run(lambda provider, request=request: provider.rerank(request, TARGET)).results  # type: ignore[misc]
        assert together.results[number].relevance_score == pytest.approx(alone.relevance_score)


def test_usage_counts_the_query_with_each_document(run: Run) -> None:
    answer = run(lambda provider: provider.rerank(asked("grey herons", ["tin", "five herons"]), TARGET))
    assert answer.usage.prompt_tokens == answer.usage.total_tokens == (2 + 1 + 3) + (2 + 2 + 3)  # three frame a pair


def test_end_of_a_long_document_is_left_out(run: Run) -> None:
    long = "tin " * 100 + "herons"
    answer = run(lambda provider: provider.rerank(asked("herons", [long, "herons " + long]), TARGET))
    first, second = (result.relevance_score for result in answer.results)
    assert first == pytest.approx(1 / (1 + np.exp(1.0)))  # nothing in common
    assert second > first
    assert answer.usage.prompt_tokens == 2 * MAX_TOKENS


def test_documents_are_read_as_far_as_the_request_says(run: Run) -> None:
    request = asked("herons", ["five grey herons"], max_tokens_per_doc=2)
    [result] = run(lambda provider: provider.rerank(request, TARGET)).results
    assert result.relevance_score == pytest.approx(1 / (1 + np.exp(1.0)))


def test_query_longer_than_half_of_the_context_is_refused(run: Run) -> None:
    assert run(lambda provider: provider.rerank(asked("tin " * 14, ["herons"]), TARGET))
    with pytest.raises(ContextLengthExceeded) as caught:
        run(lambda provider: provider.rerank(asked("tin " * 15, ["herons"]), TARGET))
    assert caught.value.param == "query"
    assert "this one has 15" in caught.value.message


@pytest.mark.parametrize("missing", ["model.onnx", "tokenizer.json"])
def test_folder_without_a_model_is_said_at_the_start(folder: Path, tmp_path: Path, missing: str) -> None:
    for file in folder.iterdir():
        if file.name != missing:
            (tmp_path / file.name).write_bytes(file.read_bytes())
    provider = CrossEncoderProvider(CrossEncoderProvider.Options(str(tmp_path)), None)  # type: ignore[arg-type]
    with pytest.raises(FileNotFoundError, match=missing):
        asyncio.run(provider.start())


def test_full_queue_refuses_calls_until_it_drains(run: Run) -> None:
    async def crowd(provider: CrossEncoderProvider) -> None:
        many = asked("herons", ["five grey herons"] * 400)
        calls = [asyncio.ensure_future(provider.rerank(many, TARGET)) for _ in range(2)]
        await asyncio.sleep(0)
        with pytest.raises(UpstreamOverloaded):
            await provider.rerank(asked("herons", ["tin"]), TARGET)
        calls[0].cancel()
        await asyncio.wait([calls[0]])
        assert (await provider.rerank(asked("herons", ["tin"]), TARGET)).results
        assert len((await calls[1]).results) == 400

    run(crowd)


def test_deadline_is_kept(run: Run) -> None:
    hasty = Target("ranker", "any", timeouts=Timeouts(total=0.001))
    with pytest.raises(UpstreamTimeout):
        run(lambda provider: provider.rerank(asked("herons", ["five grey herons"] * 1000), hasty))
