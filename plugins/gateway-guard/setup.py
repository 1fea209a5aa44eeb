"""Packaging of gateway-guard."""

from pathlib import Path

from setuptools import setup

setup(
    name="gateway-guard",
    version="0.1.0",
    description="Masks or refuses secrets and matches of patterns in the calls of model-gateway",
    long_description=(Path(__file__).parent / "README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    license="Apache-2.0",
    python_requires=">=3.11",
    packages=["gateway_guard"],
    package_data={"gateway_guard": ["py.typed"]},
    install_requires=["model-gateway", "detect-secrets>=1.5,<2", "google-re2>=1.1"],
    extras_require={"test": ["pytest<10"]},
    entry_points={"gateway": ["guard = gateway_guard"]},
)
