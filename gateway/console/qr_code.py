"""A QR code as SVG, for the authenticator app."""

from __future__ import annotations

import io

import segno


def qr_svg(text: str) -> str:
    """An `svg` element: dark modules on a light ground in both colour schemes, because apps expect that."""
    out = io.BytesIO()
    code = segno.make(text, error="m", micro=False)
    code.save(out, kind="svg", scale=4, border=4, dark="#000", light="#fff", xmldecl=False, svgns=True, nl=False,
              omitsize=True, svgclass="qr", lineclass=None, title="QR code for the authenticator app")  # fmt: skip
    return out.getvalue().decode()
