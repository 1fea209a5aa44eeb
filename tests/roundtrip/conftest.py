"""One real gateway process over the local engines, and the openai SDK in front of it.

The plugins are used as they are installed; `local-embedding` is there where gateway-minilm is.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from typing import TYPE_CHECKING

import pytest

from gateway.testing import RunningGateway, running_gateway

if TYPE_CHECKING:
    from openai import OpenAI

CONFIG = """
[providers.espeak]
plugin = "espeak"

[providers.sphinx]
plugin = "sphinx"

[models.local-tts]
provider = "espeak"
endpoints = ["speech"]
groups = ["default"]
price = { per_character = 15 }

[models.local-stt]
provider = "sphinx"
endpoints = ["transcription"]
groups = ["default"]
price = { per_second_in = 0.0001 }
"""
EMBEDDING = """
[providers.minilm]
plugin = "minilm"

[models.local-embedding]
provider = "minilm"
endpoints = ["embeddings"]
groups = ["default"]
price = { input = 0.02 }
"""


@pytest.fixture(scope="session")
def served() -> Iterator[RunningGateway]:
    """The gateway."""
    with running_gateway(CONFIG + (EMBEDDING if find_spec("gateway_minilm") else "")) as gateway:
        yield gateway


@pytest.fixture(scope="session")
def client(served: RunningGateway) -> Iterator[OpenAI]:
    """Its caller."""
    from openai import OpenAI  # every run of the tests loads this file, and the SDK takes a second

    with OpenAI(base_url=served.base_url, api_key=served.api_key, max_retries=0) as client:
        yield client
