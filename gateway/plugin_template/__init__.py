"""What `gateway plugins new NAME` writes out: a complete provider package with tests that pass as they are.

The files beside this one end in `.txt` so that nothing takes them for code of the gateway; `$name` and the like in them
and in their names are filled in. Sharp edge: an existing folder is never written into.
"""

from __future__ import annotations

import re
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from string import Template

_NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
MAX_NAME = 40


class PluginTemplate:
    """The package for one name, such as `acme` or `acme-cloud`."""

    def __init__(self, name: str) -> None:
        if not _NAME.fullmatch(name) or len(name) > MAX_NAME:
            raise ValueError("a name has lower-case letters, digits and single hyphens, a letter first")
        plain = name.replace("-", "_")
        self.folder = f"gateway-{name}"
        self._values = {
            "name": name,
            "distribution": self.folder,
            "package": f"gateway_{plain}",
            "variable": plain.upper(),
            "class_name": "".join(word.capitalize() for word in name.split("-")) + "Provider",
            "title": " ".join(word.capitalize() for word in name.split("-")),
        }

    def files(self) -> dict[str, str]:
        """Every file's path inside the package's folder, and its text."""
        found = {}
        for path, text in _texts(resources.files(__package__), ""):
            place = path.replace("package/", f"{self._values['package']}/", 1).removesuffix(".txt")
            found[place] = Template(text).substitute(self._values)
        found[f"{self._values['package']}/py.typed"] = ""
        return found

    def write(self, folder: Path) -> Path:
        """Write it out into a new folder inside `folder`; FileExistsError when there is one."""
        place = folder / self.folder
        place.mkdir(parents=True)
        for path, text in self.files().items():
            file = place / path
            file.parent.mkdir(exist_ok=True)
            file.write_text(text, encoding="utf-8")
        return place


def _texts(folder: Traversable, path: str) -> list[tuple[str, str]]:
    found = []
    for entry in folder.iterdir():
        if entry.is_dir():
            found += _texts(entry, f"{path}{entry.name}/")
        elif entry.name.endswith(".txt"):
            found.append((f"{path}{entry.name}", entry.read_text(encoding="utf-8")))
    return sorted(found)
