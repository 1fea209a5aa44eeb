"""Backups of a whole deployment in a folder: the database, the store, the journals, and on demand the pepper.

A backup has each account at one moment. The parts are read in this order: database, store, journals. So a line that is
not in the backup's database is in its store, and a settlement that is in neither may be in its journals.
"""


class BackupError(Exception):
    """The backup or the restore is refused or has failed; the text is one line for the operator."""
