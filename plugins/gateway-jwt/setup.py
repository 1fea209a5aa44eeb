"""Packaging of gateway-jwt."""

from pathlib import Path

from setuptools import setup

setup(
    name="gateway-jwt",
    version="0.1.0",
    description="Tokens of OpenID Connect issuers in place of keys of model-gateway",
    long_description=(Path(__file__).parent / "README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    license="Apache-2.0",
    python_requires=">=3.11",
    packages=["gateway_jwt"],
    package_data={"gateway_jwt": ["py.typed"]},
    install_requires=["model-gateway", "joserfc>=1.8,<2"],
    extras_require={"test": ["pytest<10"]},
    entry_points={"gateway": ["jwt = gateway_jwt"]},
)
