"""Packaging of gateway-crossencoder; the model is a folder of the operator's."""

from pathlib import Path

from setuptools import setup

setup(
    name="gateway-crossencoder",
    version="0.1.0",
    description="Rerank for model-gateway by a local cross-encoder in ONNX form, without a vendor",
    long_description=(Path(__file__).parent / "README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    license="Apache-2.0",
    python_requires=">=3.11",
    packages=["gateway_crossencoder"],
    package_data={"gateway_crossencoder": ["py.typed"]},
    install_requires=[
        "model-gateway",
        "numpy>=1.26,<3",
        "onnxruntime>=1.20,<2",
        "tokenizers>=0.20,<1",
    ],
    extras_require={"test": ["pytest<10", "onnx>=1.17,<2"]},
    entry_points={"gateway": ["crossencoder = gateway_crossencoder"]},
)
