"""Validates a provider's vectors and encodes them as numbers or as base64 (docs/api.md).

`validate(answer, request)` checks a provider's answer: one vector per input, all of the requested length, all numbers
finite. `write_list(…)` makes the body. Both yield to the event loop between vectors, because 2,048 vectors of 3,072
numbers took 2.4 s from lists to numbers, and 0.4 s from float32 to base64. Sharp edge: a plugin may have put anything
into the answer; an invalid answer counts as the upstream's failure, and another target may be tried.
"""

from __future__ import annotations

import sys
from array import array
from binascii import b2a_base64
from math import isfinite
from typing import Any

import msgspec

from gateway.errors import UpstreamInvalidResponse
from gateway.plugins.isolation import yield_to_loop
from gateway.schemas.embeddings import EmbeddingAnswer, EmbeddingRequest, Vector

FLOAT32 = 4  # bytes
BATCH = 8  # vectors between two yields to the event loop; 64 of the longest blocked it for 80 ms
_SWAP = sys.byteorder == "big"  # the wire is little-endian

_encoder = msgspec.json.Encoder()
_numbers = list[float]


async def validate(answer: EmbeddingAnswer, request: EmbeddingRequest) -> EmbeddingAnswer:
    """The answer with valid vectors; raises UpstreamInvalidResponse otherwise."""
    if not isinstance(answer, EmbeddingAnswer) or not isinstance(answer.vectors, list):
        raise UpstreamInvalidResponse(detail=f"{type(answer).__name__} instead of an EmbeddingAnswer")
    wanted = len(request.inputs)
    if len(answer.vectors) != wanted:
        raise UpstreamInvalidResponse(detail=f"{len(answer.vectors)} vectors for {wanted} inputs")
    length = request.dimensions
    for index, vector in enumerate(answer.vectors):
        if index and not index % BATCH:
            await yield_to_loop()
        found = _length(vector)
        if length is None:
            length = found
        if not found or found != length:
            raise UpstreamInvalidResponse(detail=f"vector {index} has {found} numbers instead of {length}")
    return answer


async def write_list(vectors: list[Vector], *, base64: bool, model: str, tokens: int) -> bytes:
    """The whole body of the answer."""
    write = _base64 if base64 else _floats
    parts = []
    for index, vector in enumerate(vectors):
        if index and not index % BATCH:
            await yield_to_loop()
        parts.append(b'{"object":"embedding","index":%d,"embedding":%b}' % (index, write(vector)))
    name = _encoder.encode(model)
    usage = b'{"prompt_tokens":%d,"total_tokens":%d}' % (tokens, tokens)
    return b'{"object":"list","data":[%b],"model":%b,"usage":%b}' % (b",".join(parts), name, usage)


async def write_values(vectors: list[Vector]) -> list[bytes]:
    """Each vector as an object of Google's API."""
    parts = []
    for index, vector in enumerate(vectors):
        if index and not index % BATCH:
            await yield_to_loop()
        parts.append(b'{"values":%b}' % _floats(vector))
    return parts


def _length(vector: Any) -> int:
    """The length of a vector; UpstreamInvalidResponse if it is no vector, or a number is not finite."""
    if isinstance(vector, bytes):
        if len(vector) % FLOAT32:
            raise UpstreamInvalidResponse(
                detail=f"a vector of {len(vector)} bytes is not a whole number of float32 values"
            )
        numbers = _unpack(vector)
    else:
        try:
            numbers = array("f", msgspec.convert(vector, _numbers))  # refuses texts, booleans and null
        except msgspec.ValidationError as error:
            raise UpstreamInvalidResponse(detail=f"not a vector: {error}") from None
    if not isfinite(sum(numbers)):  # a number that is not finite makes the sum not finite
        raise UpstreamInvalidResponse(detail="a vector holds a number that is not finite")
    return len(numbers)


def _unpack(vector: bytes) -> array[float]:
    numbers = array("f")
    numbers.frombytes(vector)
    if _SWAP:
        numbers.byteswap()
    return numbers


def _floats(vector: Vector) -> bytes:
    return _encoder.encode(_unpack(vector).tolist() if isinstance(vector, bytes) else vector)


def _base64(vector: Vector) -> bytes:
    if not isinstance(vector, bytes):
        numbers = array("f", vector)
        if _SWAP:
            numbers.byteswap()
        vector = numbers.tobytes()
    return b'"%b"' % b2a_base64(vector, newline=False)
