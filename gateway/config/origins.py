"""In which file of a configuration each value stands."""

from __future__ import annotations

from msgspec import Struct, field

Key = tuple[str | int, ...]  # ("models", "gpt-5-mini", "targets", 0)


class Origins(Struct):
    """Of a configuration with included files. A value is where its longest key in `places` is."""

    main: str
    places: dict[Key, str] = field(default_factory=dict)
    files: list[str] = field(default_factory=list)  # included ones

    def file_of(self, key: Key) -> str:
        """The file with a value, or with the table in which it is missing."""
        for length in range(len(key), 0, -1):
            if (found := self.places.get(key[:length])) is not None:
                return found
        return self.main
