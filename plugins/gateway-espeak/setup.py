"""Packaging of gateway-espeak; libespeak-ng and the encoders come inside the wheels it requires."""

from pathlib import Path

from setuptools import setup

setup(
    name="gateway-espeak",
    version="0.1.0",
    description="Speech for model-gateway by eSpeak NG, without a vendor",
    long_description=(Path(__file__).parent / "README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    license="Apache-2.0",
    python_requires=">=3.11",
    packages=["gateway_espeak"],
    package_data={"gateway_espeak": ["py.typed"]},
    install_requires=[
        "model-gateway",
        "espeakng-loader>=0.2.4,<0.3",
        "numpy>=1.26,<3",
        "soundfile>=0.13,<0.15",
        "soxr>=0.5,<2",
    ],
    extras_require={"test": ["pytest<10"]},
    entry_points={"gateway": ["espeak = gateway_espeak.provider"]},
)
