"""Claude on Vertex AI as the tests see it: Anthropic's dialect in Vertex's frame."""

from __future__ import annotations

import msgspec
from msgspec import structs

from gateway.testing import Reply, Seen
from tests.providers.gemini_upstream import google_error
from tests.providers.messages_dialect import messages_chat

MODEL = "claude-sonnet-4-6@20260101"
MODELS = "/v1/projects/my-project/locations/europe-west4/publishers/anthropic/models"
VERSIONS = {"vertex-2023-10-16", "2026-10-21"}
WHOLE = f"{MODEL}:rawPredict"


def vertex_chat(seen: Seen) -> Reply:
    """Vertex as a `FakeUpstream` answers it: refuses what the real one refuses, and repeats the last text."""
    models, _, method = seen.path.rpartition("/")
    model, _, verb = method.partition(":")
    if models != MODELS or verb != ("streamRawPredict" if seen.json.get("stream") else "rawPredict"):
        return Reply.json(google_error(404, "NOT_FOUND", f"no such method: {seen.path}"), status=404)
    wrong = {"model", "service_tier", "cache_control", "diagnostics", "output_format"} & seen.json.keys()
    if wrong or seen.json.get("anthropic_version") not in VERSIONS or "anthropic-version" in seen.headers:
        words = f"{sorted(wrong)}: Extra inputs are not permitted"
        return Reply.json({"type": "error", "error": {"type": "invalid_request_error", "message": words}}, status=400)
    body = msgspec.json.encode({"model": model, **seen.json})
    return messages_chat(structs.replace(seen, path="/v1/messages", body=body))
