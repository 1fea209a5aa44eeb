"""`python write_tiny_whisper.py FOLDER`: a Whisper of random weights in CTranslate2's form, for faster-whisper.

It runs in the environment of the server, which has the package that writes this form.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
from ctranslate2.specs import WhisperSpec

WIDTH, HEADS, MELS = 64, 2, 80
LIKELY = b"abcdefghijklmnopqrstuvwxyz     "
LANGUAGES = ("<|en|>", "<|de|>")
SPECIAL = (
    "<|endoftext|>", "<|startoftranscript|>", *LANGUAGES, "<|translate|>", "<|transcribe|>", "<|startoflm|>",
    "<|startofprev|>", "<|nospeech|>", "<|notimestamps|>", *(f"<|{step * 0.02:.2f}|>" for step in range(1501)),
)  # fmt: skip

_dice = np.random.default_rng(7)


def main() -> None:
    """Write the folder."""
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    vocabulary = [*_byte_names(), *SPECIAL]
    (folder / "tokenizer.json").write_text(json.dumps(_tokenizer(vocabulary)), encoding="utf-8")
    spec = _model(len(vocabulary))
    spec.register_vocabulary(vocabulary)
    spec.config.suppress_ids = spec.config.suppress_ids_begin = []
    spec.config.lang_ids = [vocabulary.index(name) for name in LANGUAGES]
    spec.config.alignment_heads = [(0, 0)]
    spec.validate()
    spec.save(str(folder))


def _byte_names() -> list[str]:
    """GPT-2's alphabet of bytes."""
    shown = {*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    hidden = [byte for byte in range(256) if byte not in shown]
    return [chr(byte) if byte in shown else chr(256 + hidden.index(byte)) for byte in range(256)]


def _tokenizer(vocabulary: list[str]) -> dict[str, Any]:
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    plain = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    added = [{"id": 256 + number, "content": name, "special": True, **plain} for number, name in enumerate(SPECIAL)]
    model = {"type": "BPE", "vocab": {name: number for number, name in enumerate(vocabulary)}, "merges": []}
    return {"version": "1.0", "added_tokens": added, "pre_tokenizer": level, "decoder": level, "model": model}


def _model(vocabulary: int) -> Any:
    spec = WhisperSpec(1, HEADS, 1, HEADS)
    encoder, decoder = spec.encoder, spec.decoder
    for convolution, inputs in ((encoder.conv1, MELS), (encoder.conv2, WIDTH)):
        convolution.weight, convolution.bias = _matrix(WIDTH, inputs, 3), np.zeros(WIDTH, np.float32)
    encoder.position_encodings.encodings = _matrix(1500, WIDTH)
    decoder.position_encodings.encodings = _matrix(448, WIDTH)
    decoder.embeddings.weight = _matrix(vocabulary, WIDTH, scale=1.0)
    likely = np.full((vocabulary, 1), 0.01, np.float32)
    likely[list(LIKELY)] = 1.0
    decoder.projection.weight = _matrix(vocabulary, WIDTH, scale=1.0) * likely
    for part in (encoder, decoder):
        _normal(part.layer_norm)
        for layer in part.layer:
            _attention(layer.self_attention, 3 * WIDTH, WIDTH)
            _normal(layer.ffn.layer_norm)
            _linear(layer.ffn.linear_0, 2 * WIDTH, WIDTH)
            _linear(layer.ffn.linear_1, WIDTH, 2 * WIDTH)
    for layer in decoder.layer:
        _attention(layer.attention, WIDTH, 2 * WIDTH, WIDTH)
    return spec


def _matrix(*shape: int, scale: float = 0.3) -> np.ndarray:
    return (_dice.standard_normal(shape) * scale).astype(np.float32)


def _normal(layer: Any) -> None:
    layer.gamma, layer.beta = np.ones(WIDTH, np.float32), np.zeros(WIDTH, np.float32)


def _linear(layer: Any, rows: int, columns: int) -> None:
    layer.weight, layer.bias = _matrix(rows, columns), np.zeros(rows, np.float32)


def _attention(layer: Any, *rows: int) -> None:
    _normal(layer.layer_norm)
    for linear, count in zip(layer.linear, rows, strict=True):
        _linear(linear, count, WIDTH)


if __name__ == "__main__":
    main()
