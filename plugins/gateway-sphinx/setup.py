"""Packaging of gateway-sphinx; the decoder and its English model come inside the wheel of pocketsphinx."""

from pathlib import Path

from setuptools import setup

setup(
    name="gateway-sphinx",
    version="0.1.0",
    description="Transcription for model-gateway by PocketSphinx, without a vendor",
    long_description=(Path(__file__).parent / "README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    license="Apache-2.0",
    python_requires=">=3.11",
    packages=["gateway_sphinx"],
    package_data={"gateway_sphinx": ["py.typed"]},
    install_requires=[
        "model-gateway",
        "numpy>=1.26,<3",
        "soundfile>=0.13,<0.15",
        "pocketsphinx>=5.0.4,<6",
        "soxr>=0.5,<2",
    ],
    extras_require={"test": ["pytest<10"]},
    entry_points={"gateway": ["sphinx = gateway_sphinx.provider"]},
)
