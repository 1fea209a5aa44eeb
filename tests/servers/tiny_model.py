"""A language model of random weights in a file of 0.5 MB: at temperature 0 it says the same each time, and no sense.

Its tokens are bytes and the space. Letters, digits and spaces are the likely ones, so that its texts are readable.
Sharp edge: a space must be one token in a prompt and in an answer, or a begun answer would be other tokens than before.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from gguf import GGUFWriter, TokenType

TRAINED_WITH = 16_384  # tokens
HEADS = 4
SEED = 7
LIKELY = b"abcdefghijklmnopqrstuvwxyz0123456789."
SPACE = "\u2581"  # as the tokenizer writes it
# Without a text that begins the answer: with one, llama.cpp refuses each grammar for this vocabulary.
TEMPLATE = "{% for message in messages %}[{{ message.role }}]{{ message.content }}\n{% endfor %}"


def write_tiny_model(path: Path, *, layers: int = 2, width: int = 64) -> None:
    """Write the file. More layers and a larger width make the same kind of answers, slower."""
    inner = 2 * width
    tokens = [b"<unk>", b"<s>", b"</s>", *(b"<0x%02X>" % byte for byte in range(256)), SPACE.encode()]
    types = [TokenType.UNKNOWN, TokenType.CONTROL, TokenType.CONTROL, *[TokenType.BYTE] * 256, TokenType.NORMAL]
    writer = GGUFWriter(path, "llama")
    writer.add_name("tiny")
    writer.add_context_length(TRAINED_WITH)
    writer.add_embedding_length(width)
    writer.add_block_count(layers)
    writer.add_feed_forward_length(inner)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(HEADS)
    writer.add_rope_dimension_count(width // HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(len(tokens))
    writer.add_tokenizer_model("llama")
    writer.add_token_list(tokens)
    writer.add_token_scores([0.0] * len(tokens))
    writer.add_token_types([int(one) for one in types])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    writer.add_chat_template(TEMPLATE)
    for name, values in _tensors(len(tokens), layers, width, inner).items():
        writer.add_tensor(name, values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _tensors(vocabulary: int, layers: int, width: int, inner: int) -> dict[str, np.ndarray]:
    dice = np.random.default_rng(SEED)

    def matrix(rows: int, columns: int, scale: float = 0.3) -> np.ndarray:
        return (dice.standard_normal((rows, columns)) * scale).astype(np.float32)

    likely = np.full((vocabulary, 1), 0.01, dtype=np.float32)
    likely[[*(3 + byte for byte in LIKELY), vocabulary - 1]] = 1.0
    ones = np.ones(width, dtype=np.float32)
    tensors = {
        "token_embd.weight": matrix(vocabulary, width, 1.0),
        "output_norm.weight": ones,
        "output.weight": matrix(vocabulary, width, 1.0) * likely,
    }
    for layer in range(layers):
        block = f"blk.{layer}"
        tensors |= {
            f"{block}.attn_norm.weight": ones,
            f"{block}.attn_q.weight": matrix(width, width),
            f"{block}.attn_k.weight": matrix(width, width),
            f"{block}.attn_v.weight": matrix(width, width),
            f"{block}.attn_output.weight": matrix(width, width),
            f"{block}.ffn_norm.weight": ones,
            f"{block}.ffn_gate.weight": matrix(inner, width),
            f"{block}.ffn_up.weight": matrix(inner, width),
            f"{block}.ffn_down.weight": matrix(width, inner),
        }
    return tensors
