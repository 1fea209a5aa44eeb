"""A cross-encoder: how many tokens texts have, and the scores of pairs. Everything here blocks, loading for seconds.

`model.onnx` takes `input_ids` with any of `attention_mask` and `token_type_ids`, and gives one number for each pair, or
two for "does not fit" and "fits". Sharp edge: `scores` is for one thread at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from onnxruntime import InferenceSession, SessionOptions
from tokenizers import Tokenizer

INPUTS = {"input_ids": "ids", "attention_mask": "attention_mask", "token_type_ids": "type_ids"}


class Model:
    """The model in a folder. ValueError, or FileNotFoundError, if that has none that can be used."""

    def __init__(self, folder: str, *, max_tokens: int, threads: int, sigmoid: bool) -> None:
        self._max_tokens, self._sigmoid = max_tokens, sigmoid
        files = [Path(folder).expanduser() / name for name in ("model.onnx", "tokenizer.json")]
        for file in files:
            if not file.is_file():
                raise FileNotFoundError(f"there is no file {file}")
        options = SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
        self._session = InferenceSession(files[0], options, providers=["CPUExecutionProvider"])
        self._names = [given.name for given in self._session.get_inputs()]
        if unknown := set(self._names) - set(INPUTS):
            raise ValueError(f"the model has inputs that are unknown: {', '.join(sorted(unknown))}")
        self._tokenizer = Tokenizer.from_file(str(files[1]))
        self._tokenizer.no_truncation()
        self._tokenizer.enable_padding()
        self._frame = self._tokenizer.num_special_tokens_to_add(is_pair=True)

    @property
    def most_of_query(self) -> int:
        """How many tokens a query may have."""
        return (self._max_tokens - self._frame) // 2

    def room(self, query: int, asked: int | None) -> int:
        """How many tokens of a document are read beside a query of so many."""
        room = self._max_tokens - self._frame - query
        return room if asked is None else min(room, asked)

    def count(self, text: str) -> int:
        """Tokens of a text, without those that frame it."""
        return len(self._tokenizer.encode(text, add_special_tokens=False).ids)

    def scores(self, query: str, documents: Sequence[str], room: int) -> tuple[list[float], int]:
        """The score of each document, of which so many tokens are read, and the tokens of all pairs."""
        pairs = [(query, self._beginning(document, room)) for document in documents]
        encoded = self._tokenizer.encode_batch(pairs)
        arrays = {
            name: np.array([getattr(pair, INPUTS[name]) for pair in encoded], dtype=np.int64)[:, : self._max_tokens]
            for name in self._names
        }
        found = np.asarray(self._session.run(None, arrays)[0], dtype=np.float64).reshape(len(pairs), -1)
        numbers = found[:, -1] if found.shape[1] == 1 or not self._sigmoid else found[:, -1] - found[:, 0]
        if self._sigmoid:
            numbers = 1.0 / (1.0 + np.exp(-np.clip(numbers, -700.0, 700.0)))
        return numbers.tolist(), sum(sum(pair.attention_mask) for pair in encoded)

    def _beginning(self, document: str, room: int) -> str:
        encoded = self._tokenizer.encode(document, add_special_tokens=False)
        return document if len(encoded.ids) <= room else document[: encoded.offsets[room - 1][1]]
