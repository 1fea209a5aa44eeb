"""What an exception means to an operator, in one line without credentials."""

from __future__ import annotations

import traceback

from gateway.accounts.pepper import PepperError
from gateway.config.public_tables import UnreadableTable
from gateway.config.secret import SecretError
from gateway.config.toml_reader import SettingsError
from gateway.errors import GatewayError
from gateway.ledger import ArchiveError
from gateway.ledger.refused import RefusedFileError
from gateway.redaction import redact
from gateway.store import StoreSetupError
from gateway.store.greeting import ServerRejected

PLAIN = (SettingsError, StoreSetupError, SecretError, PepperError, ArchiveError, RefusedFileError, UnreadableTable)


def explained(error: Exception) -> str:
    """The line; an error that no part of the gateway raises by intention is named as an internal one."""
    return redact(_explained(error))


def _explained(error: Exception) -> str:
    if isinstance(error, PLAIN):
        return str(error)
    if isinstance(error, ServerRejected):
        return error.detail or error.message
    if isinstance(error, GatewayError):
        text = error.log_text()
        return f"{error.message} ({text})" if text else error.message
    if isinstance(error, OSError):
        return f"{error.filename}: {error.strerror}" if error.filename else str(error)
    from redis.exceptions import RedisError  # its import takes as long as a whole command

    if isinstance(error, RedisError):
        return f"the store failed: {type(error).__name__}: {error}"
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return f"internal error at {frame.filename}:{frame.lineno}: {type(error).__name__}: {error}"
