"""The conformance kit on rerankings: the built-ins pass it, and it catches what it is there to catch."""

from __future__ import annotations

import msgspec
import pytest
from msgspec import Raw, Struct

from gateway import Provider, RankedDocument, Rerank, RerankAnswer, RerankRequest, Secret, Target
from gateway.testing import FakeUpstream, Reply, Seen, check_provider
from gateway.testing.openai_dialect import openai_dialect, openai_rerank
from gateway.testing.rerank_cases import CASES, UPSTREAM_CASES
from gateway.testing.whole_call_cases import NO_USAGE
from gateway_providers.cohere import CohereProvider
from gateway_providers.fake import FakeProvider
from gateway_providers.openai import OpenAIProvider
from tests.providers.cohere_dialect import cohere

NAMES = {case.__name__ for case in CASES}
UPSTREAM_NAMES = {case.__name__ for case in UPSTREAM_CASES} - {"rerank_refusals_of_the_vendor_become_typed_errors"}


def voyage(seen: Seen) -> Reply:
    """The same ranking in Voyage's words."""
    if not seen.path.endswith("/rerank"):
        return openai_dialect(seen)
    asked = seen.json
    assert "top_n" not in asked
    ranking = msgspec.json.decode(openai_rerank(seen).body)
    usage = {"total_tokens": ranking["usage"]["total_tokens"]}
    return Reply.json({"object": "list", "data": ranking["results"][: asked.get("top_k")], "usage": usage})


def test_openai_and_fake_conform_on_rerankings() -> None:
    options = {"base_url": "{upstream}/v1", "api_key": Secret("literal", "sk-canary-9f2c41")}
    passed = check_provider(OpenAIProvider, options=options, upstream=FakeUpstream())
    assert set(passed) >= NAMES | UPSTREAM_NAMES
    assert set(check_provider(FakeProvider)) >= NAMES


def test_voyage_conforms_on_rerankings() -> None:
    options = {"base_url": "{upstream}/v1", "preset": "voyage"}
    passed = check_provider(OpenAIProvider, options=options, upstream=FakeUpstream(voyage))
    assert set(passed) >= NAMES | UPSTREAM_NAMES


def test_cohere_conforms_on_rerankings() -> None:
    options = {"base_url": "{upstream}", "api_key": Secret("literal", "canary-9f2c41")}
    assert set(check_provider(CohereProvider, options=options, upstream=FakeUpstream(cohere))) >= NAMES | UPSTREAM_NAMES


class Ranker(Provider, Rerank):
    """A provider without fault, for the others to break."""

    name = "ranker"
    rerank_fields = None

    class Options(Struct, forbid_unknown_fields=True):
        pass

    async def rerank(self, request: RerankRequest, target: Target) -> RerankAnswer:
        scores = [float(sum(map(ord, text)) % 97) for text in request.texts]
        return RerankAnswer([RankedDocument(index, score) for index, score in enumerate(scores)])


def test_minimal_provider_conforms() -> None:
    report = check_provider(Ranker)
    assert set(report) == NAMES
    assert report.notes == [f"ranking_is_sound: {NO_USAGE}"]


class OnlyFirst(Ranker):
    async def rerank(self, request: RerankRequest, target: Target) -> RerankAnswer:
        return RerankAnswer((await super().rerank(request, target)).results[:1])


class Twice(Ranker):
    async def rerank(self, request: RerankRequest, target: Target) -> RerankAnswer:
        return RerankAnswer([RankedDocument(0, 1.0)] * len(request.texts))


class NotFinite(Ranker):
    async def rerank(self, request: RerankRequest, target: Target) -> RerankAnswer:
        return RerankAnswer([RankedDocument(index, float("nan")) for index in range(len(request.texts))])


class FromOne(Ranker):
    async def rerank(self, request: RerankRequest, target: Target) -> RerankAnswer:
        answer = await super().rerank(request, target)
        return RerankAnswer([RankedDocument(one.index + 1, one.relevance_score) for one in answer.results])


class ByRank(Ranker):
    """Numbers the results by their rank."""

    async def rerank(self, request: RerankRequest, target: Target) -> RerankAnswer:
        results = (await super().rerank(request, target)).results
        scores = sorted((one.relevance_score for one in results), reverse=True)
        return RerankAnswer([RankedDocument(index, score) for index, score in enumerate(scores)])


class WorstFirst(Ranker):
    """With `top_n`, gives the worst ones."""

    async def rerank(self, request: RerankRequest, target: Target) -> RerankAnswer:
        results = (await super().rerank(request, target)).results
        results.sort(key=lambda one: one.relevance_score)
        return RerankAnswer(results[: request.wanted])


class Meddler(Ranker):
    async def rerank(self, request: RerankRequest, target: Target) -> RerankAnswer:
        request.fields["model"] = Raw(b'"other"')
        return await super().rerank(request, target)


@pytest.mark.parametrize(
    ("provider", "complaint"),
    [
        (OnlyFirst, "1 results for 3 documents"),
        (Twice, "to one that has a result"),
        (NotFinite, "no finite number"),
        (FromOne, "belongs to no document"),
        (ByRank, "in another order"),
        (WorstFirst, "top_n lost the best one"),
        (Meddler, "changed the request"),
    ],
)
def test_kit_reports_a_faulty_provider(provider: type[Provider], complaint: str) -> None:
    with pytest.raises(AssertionError, match=complaint):
        check_provider(provider)
