"""Secrets by their shape, found by the detectors of detect-secrets.

Only detectors of tokens with a shape of their own are used; those that judge randomness, or words beside a value, find
too much in prose. They are Python's regular expressions, so a text is read in windows, and a job can be stopped between
two.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any, Final

import re2
from detect_secrets.plugins.artifactory import ArtifactoryDetector
from detect_secrets.plugins.aws import AWSKeyDetector
from detect_secrets.plugins.azure_storage_key import AzureStorageKeyDetector
from detect_secrets.plugins.basic_auth import BasicAuthDetector
from detect_secrets.plugins.discord import DiscordBotTokenDetector
from detect_secrets.plugins.github_token import GitHubTokenDetector
from detect_secrets.plugins.gitlab_token import GitLabTokenDetector
from detect_secrets.plugins.mailchimp import MailchimpDetector
from detect_secrets.plugins.npm import NpmDetector
from detect_secrets.plugins.openai import OpenAIDetector
from detect_secrets.plugins.pypi_token import PypiTokenDetector
from detect_secrets.plugins.sendgrid import SendGridDetector
from detect_secrets.plugins.slack import SlackDetector
from detect_secrets.plugins.square_oauth import SquareOAuthDetector
from detect_secrets.plugins.stripe import StripeDetector
from detect_secrets.plugins.telegram_token import TelegramBotTokenDetector
from detect_secrets.plugins.twilio import TwilioKeyDetector

WINDOW: Final = 4000  # characters
OVERLAP: Final = 1000  # of two windows: a longer token is found in parts
LEAST: Final = 8  # characters of a secret

_DETECTORS: Final[tuple[Any, ...]] = tuple(
    pattern
    for kind in (
        ArtifactoryDetector, AWSKeyDetector, AzureStorageKeyDetector, BasicAuthDetector, DiscordBotTokenDetector,
        GitHubTokenDetector, GitLabTokenDetector, MailchimpDetector, NpmDetector, OpenAIDetector,
        PypiTokenDetector, SendGridDetector, SlackDetector, SquareOAuthDetector, StripeDetector,
        TelegramBotTokenDetector, TwilioKeyDetector,
    )
    for pattern in kind.denylist
)  # fmt: skip
_TOKEN: Final = re2.compile(r"\beyJ[\w=-]+\.[\w=-]+(\.[\w=-]*){0,3}")
_PRIVATE_KEY: Final = re2.compile(
    r"-----BEGIN [A-Z0-9 ]*PRIVATE KEY( BLOCK)?-----(?s:.*?)(-----END [A-Z0-9 ]*PRIVATE KEY( BLOCK)?-----|\z)"
)


class Stopped(Exception):
    """The job was stopped."""


def secrets_in(text: str, stop: threading.Event) -> Iterator[tuple[int, int]]:
    """Begin and end of each secret; Stopped."""
    for pattern in (_PRIVATE_KEY, _TOKEN):
        for match in pattern.finditer(text):
            yield match.span()
    for start in range(0, max(1, len(text) - OVERLAP), WINDOW - OVERLAP):
        if stop.is_set():
            raise Stopped
        window = text[start : start + WINDOW]
        for pattern in _DETECTORS:
            for match in pattern.finditer(window):
                if match.end() - match.start() >= LEAST:
                    yield start + match.start(), start + match.end()
