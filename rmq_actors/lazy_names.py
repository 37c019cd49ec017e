"""Public names of a package that are imported at their first use, so that who needs one does not load all (PEP 562)."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping


def lazy_names(package: str, modules: Mapping[str, str]) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """The `__getattr__` and `__dir__` of a package, from the module of each name; `package` is its `__name__`."""
    names = vars(sys.modules[package])

    def get(name: str) -> object:
        """Import a public name at its first use. AttributeError for any other."""
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value: object = getattr(importlib.import_module(f"{package}.{modules[name]}"), name)
        names[name] = value
        return value

    return get, lambda: sorted([*names, *modules])
