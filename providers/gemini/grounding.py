"""The Google searches of an answer, for the charge: `groundingMetadata` names their queries.

Gemini 3 and later charge each query, earlier models each prompt that was grounded, however many queries it took.
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import Any

_BY_PROMPT = ("gemini-1*", "gemini-2*")
_QUERIES = ("webSearchQueries", "imageSearchQueries")
_MOST = 1000  # queries that are told apart; no answer has so many


class Searches:
    """Collects the queries of one answer. Frames of a stream may repeat them, and a query counts once."""

    def __init__(self, model: str) -> None:
        name = model.rpartition("/")[2]
        self._by_prompt = any(fnmatchcase(name, pattern) for pattern in _BY_PROMPT)
        self._queries: set[int] = set()  # hashes, since a query has any length

    def add(self, metadata: Any) -> None:
        """Take the queries of a candidate's `groundingMetadata`; anything else has none."""
        if not isinstance(metadata, dict):
            return
        for name in _QUERIES:
            queries = metadata.get(name)
            for query in queries if isinstance(queries, list) else ():
                if isinstance(query, str) and query and len(self._queries) < _MOST:
                    self._queries.add(hash(query))

    @property
    def count(self) -> int:
        """The number of searches that Google charges."""
        return min(len(self._queries), 1) if self._by_prompt else len(self._queries)
