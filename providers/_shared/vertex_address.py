"""Where Vertex AI is: the host of a location, and the models of a publisher in a project."""

from __future__ import annotations

import re

MULTI_REGIONS = frozenset({"us", "eu"})

_NAME = re.compile(r"[a-z0-9][a-z0-9:.-]{0,99}")


def is_vertex(project: str, location: str) -> bool:
    """Whether a configuration means Vertex; ValueError for a project or a location alone, or of another form."""
    if bool(project) != bool(location):
        raise ValueError("Vertex needs both project and location")
    for name, value in (("project", project), ("location", location)):
        if value and not _NAME.fullmatch(value):
            raise ValueError(f"{name} must be a name as Google Cloud writes it")
    return bool(project)


def vertex_host(location: str) -> str:
    """Vertex AI's address for a location: a region, a multi-region, or `global`."""
    if location == "global":
        return "https://aiplatform.googleapis.com/v1"
    if location in MULTI_REGIONS:
        return f"https://aiplatform.{location}.rep.googleapis.com/v1"
    return f"https://{location}-aiplatform.googleapis.com/v1"


def publisher_url(base: str, project: str, location: str, publisher: str) -> str:
    """The address of a publisher's collections, without a final slash."""
    return f"{base}/projects/{project}/locations/{location}/publishers/{publisher}"
