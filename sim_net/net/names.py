"""Names of nodes: how they are looked up, as Trio asks for them, and which ones nobody could look up."""

from __future__ import annotations

from typing import Final

import idna
import trio

_LABEL_MAX: Final = 63


def lookup_name(name: str) -> str:
    """What a resolver is asked for when a program asks for a node's name: in lower case, and by IDNA 2008 if not ASCII.

    ValueError for a name that cannot be asked for.
    """
    if name.endswith("."):
        raise ValueError(f"the name of node {name!r} ends with a dot: give it without, it is found with one too")
    if not name.isprintable() or " " in name:
        raise ValueError(f"node {name!r} cannot be looked up: a name has no spaces or control characters")
    if _is_address(name):
        raise ValueError(f"the name of node {name!r} is an address: give it as `address`")
    try:
        key = name if name.isascii() else idna.encode(name, uts46=True).decode("ascii")
    except idna.IDNAError as error:
        raise ValueError(f"node {name!r} cannot be looked up: {error}") from error
    if any(not 0 < len(label) <= _LABEL_MAX for label in key.split(".")):
        raise ValueError(f"node {name!r} cannot be looked up: between dots stand 1 to {_LABEL_MAX} characters")
    return key.lower()


def asked_name(host: bytes) -> str:
    """The key of a name that a program looks up: a final dot says that it is whole, which all names are here."""
    return host.decode("ascii", "replace").lower().removesuffix(".")


def _is_address(name: str) -> bool:
    """Whether Trio takes a name for a number and asks nobody: 7 is 0.0.0.7."""
    try:
        if ":" in name:
            trio.socket.inet_pton(trio.socket.AF_INET6, name)
        else:
            trio.socket.inet_aton(name)
    except OSError:
        return False
    return True
