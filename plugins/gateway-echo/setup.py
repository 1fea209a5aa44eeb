"""Packaging of gateway-echo, and a pattern for yours: the entry point is what makes it a plugin."""

from pathlib import Path

from setuptools import setup

setup(
    name="gateway-echo",
    version="0.1.0",
    description="A model-gateway provider that repeats what you say",
    long_description=(Path(__file__).parent / "README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    license="Apache-2.0",
    python_requires=">=3.11",
    packages=["gateway_echo"],
    package_data={"gateway_echo": ["py.typed"]},
    install_requires=["model-gateway"],
    extras_require={"test": ["pytest<10"]},
    entry_points={"gateway": ["echo = gateway_echo"]},
)
