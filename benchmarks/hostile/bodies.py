"""The requests of the hostile account, as bytes."""

from __future__ import annotations

import gzip
import json

MIB = 2**20
PATH = "/v1/chat/completions"
ADDRESSES = "http://10.0.0.1/a?key=sk-0123456789abcdef https://user:password@host.example/ " * 40
BOUNDARY = b"b" * 69


def request(body: bytes, *, key: str, path: str = PATH, kind: str = "application/json", extra: str = "") -> bytes:
    """One request with its body."""
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {key}\r\nContent-Type: {kind}\r\n{extra}"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


def chat(model: str, key: str, *, stream: bool = False, text: str = "hello") -> bytes:
    """A chat."""
    document = {"model": model, "messages": [{"role": "user", "content": text}], "stream": stream, "max_tokens": 64}
    return request(json.dumps(document).encode(), key=key)


def many_values(key: str) -> bytes:
    """3 MiB with 1.5 million values."""
    values = b",".join([b"0"] * (3 * MIB // 2))
    return request(b'{"model":"mock","messages":[{"role":"user","content":"x"}],"stop":[%b]}' % values, key=key)


def large_valid(key: str) -> bytes:
    """3 MiB with fewer objects than the limit: messages of some words each."""
    message = b'{"role":"user","content":"%b"}' % (b"word " * 24)
    return request(b'{"model":"mock","messages":[%b]}' % b",".join([message] * 19_990), key=key)


def many_objects(key: str) -> bytes:
    """2 MiB with more objects than the limit, in messages."""
    message = b'{"role":"user","content":"%b"}' % (b"word " * 3)
    return request(b'{"model":"mock","messages":[%b]}' % b",".join([message] * 45_000), key=key)


def small_objects(key: str) -> bytes:
    """250 KiB of messages, just below the size from which a body is examined in pieces."""
    return request(b'{"model":"mock","messages":[%b]}' % b",".join([b'{"role":"user","content":"x"}'] * 8_500), key=key)


def medium(key: str) -> bytes:
    """900 KiB of values."""
    values = b",".join([b"0"] * (900 * 512))
    return request(b'{"model":"mock","messages":[{"role":"user","content":"x"}],"stop":[%b]}' % values, key=key)


def bomb(key: str) -> bytes:
    """60 KiB of gzip that inflate to 60 MiB."""
    return request(gzip.compress(b" " * (60 * MIB)), key=key, extra="Content-Encoding: gzip\r\n")


def boundaries(key: str) -> bytes:
    """A form of 4 MiB whose file almost is a boundary everywhere."""
    near = (b"\r\n--" + BOUNDARY[:-1]) * (4 * MIB // 72)
    head = b'--%b\r\nContent-Disposition: form-data; name="file"; filename="a.wav"\r\n\r\n' % BOUNDARY
    body = head + near + b"\r\n--%b--\r\n" % BOUNDARY
    kind = "multipart/form-data; boundary=" + BOUNDARY.decode()
    return request(body, key=key, path="/v1/audio/transcriptions", kind=kind)


def repeated_keys(key: str) -> bytes:
    """A chat with a key twice, in 40 tools."""
    tool = b'{"type":"function","function":{"name":"f","parameters":{"type":"object","properties":{}}}}'
    tools = b",".join([tool] * 40)
    body = b'{"model":"mock","messages":[{"role":"user","content":"x"}],"tools":[%b],"model":"mock"}' % tools
    return request(body, key=key)


def addresses(key: str) -> bytes:
    """A chat with addresses and credentials in its text, and unknown fields that look like them."""
    document = {"model": "mock", "messages": [{"role": "user", "content": ADDRESSES}], "base_url": ADDRESSES[:40]}
    return request(json.dumps(document).encode(), key=key)
