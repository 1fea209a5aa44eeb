"""E-mail addresses: the one form in which they are checked, stored and sent to.

Mail programs read more from an address than its characters: encoded words, quoted text, comments, source routes. An
address in this form means the same to all of them, so a message goes to the address that was checked.
"""

from __future__ import annotations

import re

MAX_LENGTH = 254  # characters, as in SMTP
MAX_LOCAL = 64  # before the @

_ATOM = r"[a-z0-9_+'&=~#$*/?^{}-]+"  # without % and !, which older servers route by, and without ` and |
_LABEL = r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
_LOCAL = re.compile(rf"{_ATOM}(?:\.{_ATOM})*", re.ASCII)
_DOMAIN = re.compile(rf"(?:{_LABEL}\.)*(?=[0-9]*[a-z-]){_LABEL}", re.ASCII)  # the last label has a letter
ENCODED_WORD = "=?"  # its beginning


def normal_address(text: str) -> str:
    """The address in lower case, without spaces around it; ValueError for another form.

    Only ASCII: an international domain is written in its ASCII form, `xn--…`.
    """
    address = text.strip(" ").lower() if len(text) <= 2 * MAX_LENGTH and text.isascii() else ""
    local, _, domain = address.rpartition("@")
    if len(address) > MAX_LENGTH or len(local) > MAX_LOCAL or ENCODED_WORD in local:
        raise ValueError("not an e-mail address")
    if not _LOCAL.fullmatch(local) or not _DOMAIN.fullmatch(domain):
        raise ValueError("not an e-mail address")
    return address


def is_address(text: str) -> bool:
    """Whether the text is an address in this form, in any case, without spaces around it."""
    try:
        return normal_address(text) == text.lower()
    except ValueError:
        return False
