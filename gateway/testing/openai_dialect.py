"""OpenAI's dialect as a `FakeUpstream` speaks it: each endpoint a function from what was seen to a right answer."""

from __future__ import annotations

import hashlib
import struct
from base64 import b64encode
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from gateway.schemas.scoring.moderation import CATEGORIES
from gateway.schemas.speech import MEDIA_TYPES
from gateway.testing.reply import Reply, Seen
from gateway.uploads.form import FormReader
from gateway.uploads.spool import Spool


def openai_dialect(seen: Seen) -> Reply:
    """Whatever endpoint was asked."""
    for path, answer in ENDPOINTS.items():
        if seen.path.endswith(path):
            return answer(seen)
    return Reply.error(404, f"no such path: {seen.path}")


def openai_chat(seen: Seen) -> Reply:
    """OpenAI's chat dialect: repeats the last message word by word, whole or as a stream, with usage."""
    if not seen.path.endswith("/chat/completions"):
        return Reply.error(404, f"no such path: {seen.path}")
    asked = seen.json
    text = asked["messages"][-1].get("content") or ""
    words = [f"{word} " for word in (text if isinstance(text, str) else "parts").split()] or ["nothing "]
    usage = {"prompt_tokens": len(words) + 3, "completion_tokens": len(words), "total_tokens": 2 * len(words) + 3}
    head = {"id": "chatcmpl-upstream", "created": 1700000000, "model": asked["model"], "system_fingerprint": "fp_fake"}
    if not asked.get("stream"):
        message = {"role": "assistant", "content": "".join(words), "refusal": None}
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": "stop"}
        return Reply.json({**head, "object": "chat.completion", "choices": [choice], "usage": usage})
    deltas: list[tuple[dict[str, Any], str | None]] = [({"role": "assistant", "content": ""}, None)]
    deltas += [({"content": word}, None) for word in words] + [({}, "stop")]
    head["object"] = "chat.completion.chunk"
    chunks: list[Any] = [
        {**head, "choices": [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}], "usage": None}
        for delta, finish in deltas
    ]
    if (asked.get("stream_options") or {}).get("include_usage"):
        chunks.append({**head, "choices": [], "usage": usage})
    return Reply.stream(chunks)


def openai_completions(seen: Seen) -> Reply:
    """Repeats each prompt word by word in each of its choices, whole or as a stream, with usage.

    Token numbers are words. `best_of` texts are counted, and `n` of them are given back.
    """
    asked = seen.json
    given = asked["prompt"]
    prompts = [given] if isinstance(given, str) or given is None or isinstance(given[0], int) else given
    texts = [(prompt or "") if isinstance(prompt, str | None) else " ".join(map(str, prompt)) for prompt in prompts]
    number, limit = asked.get("n") or 1, asked.get("max_tokens", 16)
    made = [[f"{word} " for word in text.split()][:limit] for text in texts]
    echoed = [[text] if asked.get("echo") else [] for text in texts]
    words = [[*before, *said] for before, said in zip(echoed, made, strict=True) for _ in range(number)]
    reasons = ["length" if len(text.split()) > limit else "stop" for text in texts for _ in range(number)]
    prompt_tokens = sum(len(text.split()) or 1 for text in texts)
    completion_tokens = max(number, asked.get("best_of") or 1) * sum(map(len, made))
    counted = {"prompt_tokens": prompt_tokens, "completion_tokens": completion_tokens}
    usage = {**counted, "total_tokens": prompt_tokens + completion_tokens}
    head = {"id": "cmpl-upstream", "object": "text_completion", "created": 1700000000, "model": asked["model"]}

    def choice(index: int, said: list[str], reason: str | None) -> dict[str, Any]:
        text = "".join(said)
        offsets = [len("".join(said[:place])) for place in range(len(said))]
        tops = [{word: -0.5} for word in said]
        probable = {"tokens": said, "token_logprobs": [-0.5] * len(said), "top_logprobs": tops, "text_offset": offsets}
        logprobs = probable if said and asked.get("logprobs") is not None else None
        return {"index": index, "text": text, "logprobs": logprobs, "finish_reason": reason}

    if not asked.get("stream"):
        choices = [choice(index, said, reasons[index]) for index, said in enumerate(words)]
        return Reply.json({**head, "choices": choices, "usage": usage})
    frames: list[Any] = []
    for index, said in enumerate(words):
        frames += [{**head, "choices": [choice(index, [word], None)]} for word in said]
        frames.append({**head, "choices": [choice(index, [], reasons[index])]})
    if (asked.get("stream_options") or {}).get("include_usage"):
        frames.append({**head, "choices": [], "usage": usage})
    return Reply.stream(frames)


def _ended(reason: str) -> Callable[[Seen], Reply]:
    """Chat whose answers end for this reason."""

    def answer(seen: Seen) -> Reply:
        reply, stop = openai_chat(seen), b'"finish_reason":"stop"'
        ended = b'"finish_reason":"%b"' % reason.encode()
        frames = [frame.replace(stop, ended) for frame in reply.frames] if reply.frames is not None else None
        return msgspec.structs.replace(reply, body=reply.body.replace(stop, ended), frames=frames)

    return answer


#: Vendors whose chat answers end for another reason than "stop".
ENDINGS: Mapping[str, Callable[[Seen], Reply]] = {reason: _ended(reason) for reason in ("length", "content_filter")}


def openai_embeddings(seen: Seen) -> Reply:
    """Vectors of four numbers, or as many as were asked for; words, or token numbers, are counted."""
    asked = seen.json
    given = asked["input"]
    entries = [given] if isinstance(given, str) or isinstance(given[0], int) else given
    length = asked.get("dimensions") or 4
    data = []
    for index, entry in enumerate(entries):
        digest = hashlib.sha256(msgspec.json.encode(entry)).digest()
        numbers = [(digest[at % len(digest)] - 128) / 128 for at in range(length)]
        packed = b64encode(struct.pack(f"<{length}f", *numbers)).decode()
        vector: Any = packed if asked.get("encoding_format") == "base64" else numbers
        data.append({"object": "embedding", "index": index, "embedding": vector})
    tokens = sum(len(entry.split()) if isinstance(entry, str) else len(entry) for entry in entries)
    usage = {"prompt_tokens": tokens, "total_tokens": tokens}
    return Reply.json({"object": "list", "model": asked["model"], "data": data, "usage": usage})


def openai_images(seen: Seen) -> Reply:
    """Images of one pixel, whole or as named events; ten words of prompt and a hundred tokens an image are counted."""
    return _images(seen.json, "image_generation")


def openai_image_edits(seen: Seen) -> Reply:
    """The same for a form with images."""
    texts, _ = read_form(seen, file="image", more_files=("image", "mask", "markup"), most_files=18)
    asked: dict[str, Any] = {name: int(text) if text.isdigit() else text for name, text in texts.items()}
    return _images({**asked, "stream": texts.get("stream") == "true"}, "image_edit")


def _images(asked: Mapping[str, Any], kind: str) -> Reply:
    count = asked.get("n") or 1
    said = {"size": "1024x1024", "quality": "low", "background": "opaque", "output_format": "png"}
    said |= {name: asked[name] for name in said if asked.get(name) not in (None, "auto")}
    if asked.get("stream"):
        previews = [
            {"type": f"{kind}.partial_image", "partial_image_index": at, "b64_json": PIXEL, "created_at": 1}
            for at in range(asked.get("partial_images") or 0)
        ]
        finished = [
            {"type": f"{kind}.completed", "b64_json": PIXEL, "created_at": 1, "usage": _image_usage(made + 1)}
            for made in range(count)
        ]
        frames = [
            b"event: %b\ndata: %b\n\n" % (str(event["type"]).encode(), msgspec.json.encode({**event, **said}))
            for event in (*previews, *finished)
        ]
        return Reply(headers={"Content-Type": "text/event-stream"}, frames=frames)
    urls = asked.get("response_format") == "url"
    image = {"url": "https://images.invalid/1.png"} if urls else {"b64_json": PIXEL}
    return Reply.json({"created": 1, "data": [image] * count, "usage": _image_usage(count), **said})


def _image_usage(images: int) -> dict[str, Any]:
    details = {"text_tokens": 10, "image_tokens": 0}
    made = 100 * images
    return {
        "input_tokens": 10,
        "output_tokens": made,
        "total_tokens": 10 + made,
        "input_tokens_details": details,
    }


def openai_moderation(seen: Seen) -> Reply:
    """A text with the word "kill" is violence, and every other is harmless."""
    given: Any = seen.json["input"]
    inputs: list[Any] = [given] if isinstance(given, str) else given
    if isinstance(inputs[0], dict):
        inputs = [" ".join(part.get("text", "") for part in inputs)]
    results = []
    for text in inputs:
        flags = {name: name == "violence" and "kill" in text for name in CATEGORIES}
        scores = {name: 0.9 if flag else 0.001 for name, flag in flags.items()}
        kinds = {name: ["text"] for name in CATEGORIES}
        flagged = any(flags.values())
        results.append({
            "flagged": flagged, "categories": flags, "category_scores": scores, "category_applied_input_types": kinds
        })  # fmt: skip
    return Reply.json({"id": "modr-upstream", "model": seen.json["model"], "results": results})


def openai_rerank(seen: Seen) -> Reply:
    """Jina's dialect: documents by the words that they share with the query; all words are counted as tokens."""
    asked = seen.json
    query = set(asked["query"].split())
    scores = [len(query & set(text.split())) / len(query) for text in asked["documents"]]
    order = sorted(range(len(scores)), key=lambda at: -scores[at])[: asked.get("top_n")]
    results = [{"index": at, "relevance_score": scores[at]} for at in order]
    tokens = sum(len(query) + len(text.split()) for text in asked["documents"])
    usage = {"prompt_tokens": tokens, "total_tokens": tokens}
    return Reply.json({"object": "list", "model": asked["model"], "results": results, "usage": usage})


def openai_speech(seen: Seen) -> Reply:
    """A second of audio in three pieces, or in events; words and fifty tokens are counted, which only events tell."""
    asked = seen.json
    format = asked.get("response_format") or "mp3"
    audio = AUDIO[format]
    third = len(audio) // 3
    pieces = [audio[:third], audio[third : 2 * third], audio[2 * third :]]
    if asked.get("stream_format") != "sse":
        return Reply(headers={"Content-Type": MEDIA_TYPES[format]}, frames=pieces)
    words = len(asked["input"].split())
    usage = {"input_tokens": words, "output_tokens": 50, "total_tokens": words + 50}
    events: list[Any] = [{"type": "speech.audio.delta", "audio": b64encode(piece).decode()} for piece in pieces]
    return Reply.stream([*events, {"type": "speech.audio.done", "usage": usage}], done=False)


def openai_transcription(seen: Seen) -> Reply:
    """Four words about what was heard, as a document or as events, three seconds by the clock; or their translation."""
    texts, size = read_form(seen)
    text = f"I heard {size} bytes"
    usage = {"type": "duration", "seconds": 3}
    if texts.get("stream") == "true":
        words = text.split()
        events: list[Any] = [{"type": "transcript.text.delta", "delta": f"{word} "} for word in words]
        return Reply.stream([*events, {"type": "transcript.text.done", "text": text, "usage": usage}], done=False)
    document: dict[str, Any] = {"text": text, "usage": usage}
    if texts.get("response_format") in ("verbose_json", "diarized_json"):
        segment = {"id": 0, "start": 0.0, "end": 1.5, "text": "I heard"}
        other = {"id": 1, "start": 1.5, "end": 3.0, "text": f"{size} bytes"}
        task = "translate" if seen.path.endswith("/translations") else "transcribe"
        document |= {"duration": 3.0, "language": "english", "task": task, "segments": [segment, other]}
    if texts.get("response_format") == "diarized_json":
        document["segments"] = [{**segment, "speaker": "A"}, {**other, "speaker": "B"}]
    return Reply.json(document)


def read_form(seen: Seen, *, file: str = "file", **more: Any) -> tuple[dict[str, str], int]:
    """The text fields of a form that was sent, and the size of its files; `more` is for `FormReader`."""
    spool = Spool(Path())
    reader = FormReader(seen.headers["content-type"], spool, file=file, **more)
    reader.feed(seen.body)
    return dict(reader.finish().texts), spool.size


#: A PNG of one grey pixel in base64.
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR4nGNoaGgAAAMEAYFL09IQAAAAAElFTkSuQmCC"

_SECOND = bytes(48_000)  # of silence: 24 kHz, 16 bits, mono
_WAV = struct.pack(
    "<4sI4s4sIHHIIHH4sI", b"RIFF", 48_036, b"WAVE", b"fmt ", 16, 1, 1, 24_000, 48_000, 2, 16, b"data", 48_000
)
#: A second each; Opus, AAC and FLAC only in name.
AUDIO: Mapping[str, bytes] = {
    "pcm": _SECOND,
    "wav": _WAV + _SECOND,
    "mp3": (b"\xff\xf3\x84\xc4" + bytes(188)) * 42,
    "opus": b"OggS" + bytes(8_000),
    "aac": b"\xff\xf1" + bytes(8_000),
    "flac": b"fLaC" + bytes(28_000),
}


def openai_models(_: Seen) -> Reply:
    """A list of two models."""
    head = {"object": "model", "created": 1700000000, "owned_by": "fake"}
    return Reply.json({"object": "list", "data": [{"id": "gpt-fake", **head}, {"id": "fake-embedding", **head}]})


ENDPOINTS: Mapping[str, Callable[[Seen], Reply]] = {
    "/chat/completions": openai_chat,
    "/completions": openai_completions,  # after that of chats, which ends with it
    "/embeddings": openai_embeddings,
    "/images/generations": openai_images,
    "/images/edits": openai_image_edits,
    "/images/variations": openai_image_edits,
    "/moderations": openai_moderation,
    "/rerank": openai_rerank,
    "/audio/speech": openai_speech,
    "/audio/transcriptions": openai_transcription,
    "/audio/translations": openai_transcription,
    "/models": openai_models,
}
