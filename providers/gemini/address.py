"""Where Gemini is: Google's developer API, or Vertex AI in a project and a location (docs/providers/gemini.md)."""

from __future__ import annotations

from urllib.parse import quote

from .._shared.http_provider import checked_base_url
from .._shared.vertex_address import is_vertex, publisher_url, vertex_host

DEVELOPER = "https://generativelanguage.googleapis.com/v1beta"


class Address:
    """URLs of one deployment; `hidden` are the texts in them that no error may show."""

    def __init__(self, *, base_url: str = "", project: str = "", location: str = "") -> None:
        self.vertex = is_vertex(project, location)
        base, netloc = checked_base_url(base_url or (vertex_host(location) if self.vertex else DEVELOPER))
        self._models = publisher_url(base, project, location, "google") if self.vertex else base
        self.hidden = tuple(text for text in (netloc, project) if text)

    def method(self, model: str, verb: str) -> str:
        """The URL of a method of a model; never with a key in it, since URLs end up in logs."""
        return f"{self._models}/{resource(model)}:{verb}"


def resource(model: str) -> str:
    """A model's name as a resource: `models/…` unless it says another collection, such as `tunedModels/…`."""
    return quote(model if "/" in model else f"models/{model}", safe="/-._~@")
