"""Where Gemini is: Google's developer API, or Vertex AI in a project and a location (docs/providers/gemini.md)."""

from __future__ import annotations

import re
from urllib.parse import quote

from .._shared.http_provider import checked_base_url

DEVELOPER = "https://generativelanguage.googleapis.com/v1beta"
MULTI_REGIONS = frozenset({"us", "eu"})

_NAME = re.compile(r"[a-z0-9][a-z0-9:.-]{0,99}")


class Address:
    """URLs of one deployment; `hidden` are the texts in them that no error may show."""

    def __init__(self, *, base_url: str = "", project: str = "", location: str = "") -> None:
        if bool(project) != bool(location):
            raise ValueError("Vertex needs both project and location")
        for name, value in (("project", project), ("location", location)):
            if value and not _NAME.fullmatch(value):
                raise ValueError(f"{name} must be a name as Google Cloud writes it")
        self.vertex = bool(project)
        host = vertex_host(location) if self.vertex else DEVELOPER
        base, netloc = checked_base_url(base_url or host)
        self._models = base
        if self.vertex:
            self._models = f"{base}/projects/{project}/locations/{location}/publishers/google"
        self.hidden = tuple(text for text in (netloc, project) if text)

    def method(self, model: str, verb: str) -> str:
        """The URL of a method of a model; never with a key in it, since URLs end up in logs."""
        return f"{self._models}/{resource(model)}:{verb}"


def vertex_host(location: str) -> str:
    """Vertex AI's address for a location: a region, a multi-region, or `global`."""
    if location == "global":
        return "https://aiplatform.googleapis.com/v1"
    if location in MULTI_REGIONS:
        return f"https://aiplatform.{location}.rep.googleapis.com/v1"
    return f"https://{location}-aiplatform.googleapis.com/v1"


def resource(model: str) -> str:
    """A model's name as a resource: `models/…` unless it says another collection, such as `tunedModels/…`."""
    return quote(model if "/" in model else f"models/{model}", safe="/-._~@")
