"""`python write_tone_voice.py FOLDER`: a voice for Piper that says each text as a tone, 256 samples for each letter.

It runs in the environment of the server, which has the package that writes this form.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import onnx
from onnx import TensorProto, helper

RATE = 22_050  # Hz
LETTERS = "abcdefghijklmnopqrstuvwxyz .,'!?"


def main() -> None:
    """Write the folder."""
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    onnx.save(_model(), folder / "tone.onnx")
    numbers = {letter: [3 + number] for number, letter in enumerate(LETTERS)}
    config = {
        "audio": {"sample_rate": RATE},
        "espeak": {"voice": "en-us"},
        "inference": {"noise_scale": 0.667, "length_scale": 1, "noise_w": 0.8},
        "phoneme_type": "text",
        "num_symbols": 256,
        "num_speakers": 1,
        "speaker_id_map": {},
        "phoneme_id_map": {**numbers, "_": [0], "^": [1], "$": [2]},
    }
    (folder / "tone.onnx.json").write_text(json.dumps(config), encoding="utf-8")


def _model() -> Any:
    """A sine as long as the text; what the text says and the scales do not matter."""
    constants = [
        _constant("samples", TensorProto.INT64, [], [256]),
        _constant("zero", TensorProto.INT64, [], [0]),
        _constant("one", TensorProto.INT64, [], [1]),
        _constant("step", TensorProto.FLOAT, [], [0.06]),
        _constant("volume", TensorProto.FLOAT, [], [0.3]),
        _constant("nothing", TensorProto.FLOAT, [], [0.0]),
        _constant("shape", TensorProto.INT64, [4], [1, 1, 1, -1]),
    ]
    node = helper.make_node
    steps = [
        node("Gather", ["input_lengths", "zero"], ["letters"]),
        node("Mul", ["letters", "samples"], ["length"]),
        node("Range", ["zero", "length", "one"], ["numbers"]),
        node("Cast", ["numbers"], ["places"], to=TensorProto.FLOAT),
        node("Mul", ["places", "step"], ["angles"]),
        node("Sin", ["angles"], ["sine"]),
        node("Mul", ["sine", "volume"], ["tone"]),
        node("ReduceSum", ["scales"], ["scale"], keepdims=0),
        node("ReduceSum", ["input"], ["sum"], keepdims=0),
        node("Cast", ["sum"], ["text"], to=TensorProto.FLOAT),
        node("Add", ["scale", "text"], ["rest"]),
        node("Mul", ["rest", "nothing"], ["silence"]),
        node("Add", ["tone", "silence"], ["sound"]),
        node("Reshape", ["sound", "shape"], ["output"]),
    ]
    value = helper.make_tensor_value_info
    inputs = [
        value("input", TensorProto.INT64, ["batch", "letters"]),
        value("input_lengths", TensorProto.INT64, ["batch"]),
        value("scales", TensorProto.FLOAT, [3]),
    ]
    outputs = [value("output", TensorProto.FLOAT, [1, 1, 1, "samples"])]
    graph = helper.make_graph([*constants, *steps], "tone", inputs, outputs)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 8
    onnx.checker.check_model(model)
    return model


def _constant(name: str, kind: int, shape: list[int], values: list[Any]) -> Any:
    return helper.make_node("Constant", [], [name], value=helper.make_tensor(name, kind, shape, values))


if __name__ == "__main__":
    main()
