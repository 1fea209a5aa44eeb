"""Direct questions to a model server."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from typing import Any

Document = dict[str, Any]


class ModelServer:
    """Where it serves, and its name of the model."""

    def __init__(self, port: int, model: str) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self.port = port
        self.model = model

    def ask(self, path: str, document: Document | None = None) -> Any:
        """The JSON of an answer."""
        data = None if document is None else json.dumps(document).encode()
        request = urllib.request.Request(self.url + path, data, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=60.0) as answer:
            return json.loads(answer.read())

    def metric(self, name: str) -> float:
        """The value of a series of `/metrics` by the beginning of its line."""
        with urllib.request.urlopen(f"{self.url}/metrics", timeout=60.0) as answer:
            lines = answer.read().decode().splitlines()
        return next(float(line.split()[-1]) for line in lines if line.startswith(name))

    def status(self, path: str) -> int:
        """The status of an answer; 0 without one."""
        try:
            with urllib.request.urlopen(self.url + path, timeout=60.0) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            return error.code
        except OSError:
            return 0
