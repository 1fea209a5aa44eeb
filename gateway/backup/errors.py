"""Why a backup cannot be made, or a folder cannot be restored."""

from __future__ import annotations


class BackupError(Exception):
    """The backup or the restore is refused or has failed; the text is one line for the operator."""
