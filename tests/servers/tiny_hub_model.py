"""The same kind of model as a folder of Hugging Face's form, for servers that read that: a language model, or vectors.

It is written without the packages of those servers: they are not in the environment of the test.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from .tiny_model import LIKELY, SEED, TEMPLATE

WINDOW = 2048  # tokens
WIDTH, LAYERS, HEADS, INNER = 64, 2, 2, 128
SPECIAL = ("<unk>", "<s>", "</s>")

Tensors = dict[str, np.ndarray]


def write_language_model(folder: Path) -> None:
    """A Llama whose tokens are bytes."""
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": len(SPECIAL) + 256,
        "hidden_size": WIDTH,
        "intermediate_size": INNER,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "num_key_value_heads": HEADS,
        "max_position_embeddings": WINDOW,
        "rms_norm_eps": 1e-5,
        "tie_word_embeddings": False,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "torch_dtype": "float32",
    }
    _write(folder, config, _language_tensors(), {"chat_template": TEMPLATE})


def write_vector_model(folder: Path, *, ranks: bool = False) -> None:
    """A BERT that makes vectors of texts, or that `ranks` a text for a question."""
    config = {
        "architectures": ["BertForSequenceClassification" if ranks else "BertModel"],
        "model_type": "bert",
        "vocab_size": len(SPECIAL) + 256,
        "hidden_size": WIDTH,
        "intermediate_size": INNER,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "max_position_embeddings": WINDOW,
        "type_vocab_size": 2,
        "pad_token_id": 0,
        "torch_dtype": "float32",
        **({"id2label": {"0": "LABEL_0"}, "label2id": {"LABEL_0": 0}} if ranks else {}),
    }
    _write(folder, config, _vector_tensors(ranks=ranks), {"pad_token": "<unk>"})


def _write(folder: Path, config: dict[str, Any], tensors: Tensors, more: dict[str, str]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": "<s>",
        "eos_token": "</s>",
        "unk_token": "<unk>",
        "model_max_length": WINDOW,
        **more,
    }
    documents = {"config.json": config, "tokenizer.json": _tokenizer(), "tokenizer_config.json": tokenizer}
    for name, document in documents.items():
        (folder / name).write_text(json.dumps(document), encoding="utf-8")
    (folder / "model.safetensors").write_bytes(_safetensors(tensors))


def _safetensors(tensors: Tensors) -> bytes:
    head: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    at = 0
    for name, values in tensors.items():
        head[name] = {"dtype": "F32", "shape": list(values.shape), "data_offsets": [at, at + values.nbytes]}
        at += values.nbytes
    text = json.dumps(head).encode()
    return len(text).to_bytes(8, "little") + text + b"".join(values.tobytes() for values in tensors.values())


def _tokenizer() -> dict[str, Any]:
    """One token for each byte, under the names of GPT-2's alphabet of bytes."""
    vocabulary = {name: number for number, name in enumerate((*SPECIAL, *_byte_names()))}
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    plain = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    added = [{"id": number, "content": name, "special": True, **plain} for number, name in enumerate(SPECIAL)]
    model = {"type": "BPE", "vocab": vocabulary, "merges": [], "unk_token": "<unk>"}
    return {"version": "1.0", "added_tokens": added, "pre_tokenizer": level, "decoder": level, "model": model}


def _byte_names() -> list[str]:
    shown = {*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    hidden = [byte for byte in range(256) if byte not in shown]
    return [chr(byte) if byte in shown else chr(256 + hidden.index(byte)) for byte in range(256)]


class _Dice:
    """Weights, the same each time."""

    def __init__(self) -> None:
        self._random = np.random.default_rng(SEED)

    def matrix(self, rows: int, columns: int, scale: float = 0.3) -> np.ndarray:
        return (self._random.standard_normal((rows, columns)) * scale).astype(np.float32)


def _language_tensors() -> Tensors:
    dice, vocabulary = _Dice(), len(SPECIAL) + 256
    likely = np.full((vocabulary, 1), 0.01, dtype=np.float32)
    likely[[len(SPECIAL) + byte for byte in LIKELY]] = 1.0
    ones = np.ones(WIDTH, dtype=np.float32)
    tensors = {
        "model.embed_tokens.weight": dice.matrix(vocabulary, WIDTH, 1.0),
        "model.norm.weight": ones,
        "lm_head.weight": dice.matrix(vocabulary, WIDTH, 1.0) * likely,
    }
    for layer in range(LAYERS):
        block = f"model.layers.{layer}"
        tensors |= {f"{block}.{name}.weight": ones for name in ("input_layernorm", "post_attention_layernorm")}
        tensors |= {f"{block}.self_attn.{name}_proj.weight": dice.matrix(WIDTH, WIDTH) for name in "qkvo"}
        tensors |= {f"{block}.mlp.{name}_proj.weight": dice.matrix(INNER, WIDTH) for name in ("gate", "up")}
        tensors[f"{block}.mlp.down_proj.weight"] = dice.matrix(WIDTH, INNER)
    return tensors


def _vector_tensors(*, ranks: bool) -> Tensors:
    dice, prefix = _Dice(), "bert." if ranks else ""
    zeros, ones = np.zeros(WIDTH, dtype=np.float32), np.ones(WIDTH, dtype=np.float32)
    tensors = {
        "embeddings.word_embeddings.weight": dice.matrix(len(SPECIAL) + 256, WIDTH, 1.0),
        "embeddings.position_embeddings.weight": dice.matrix(WINDOW, WIDTH),
        "embeddings.token_type_embeddings.weight": dice.matrix(2, WIDTH),
        "embeddings.LayerNorm.weight": ones,
        "embeddings.LayerNorm.bias": zeros,
        "pooler.dense.weight": dice.matrix(WIDTH, WIDTH),
        "pooler.dense.bias": zeros,
    }
    for layer in range(LAYERS):
        block = f"encoder.layer.{layer}"
        for name in ("query", "key", "value"):
            tensors[f"{block}.attention.self.{name}.weight"] = dice.matrix(WIDTH, WIDTH)
            tensors[f"{block}.attention.self.{name}.bias"] = zeros
        sizes = {"attention.output": (WIDTH, WIDTH), "intermediate": (INNER, WIDTH), "output": (WIDTH, INNER)}
        for name, (rows, columns) in sizes.items():
            tensors[f"{block}.{name}.dense.weight"] = dice.matrix(rows, columns)
            tensors[f"{block}.{name}.dense.bias"] = np.zeros(rows, dtype=np.float32)
        for name in ("attention.output", "output"):
            tensors[f"{block}.{name}.LayerNorm.weight"] = ones
            tensors[f"{block}.{name}.LayerNorm.bias"] = zeros
    tensors = {prefix + name: values for name, values in tensors.items()}
    if ranks:
        tensors |= {"classifier.weight": dice.matrix(1, WIDTH), "classifier.bias": np.zeros(1, dtype=np.float32)}
    return tensors
