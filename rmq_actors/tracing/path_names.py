"""Names that can stand in a path, and be a value of a partition, as they are: of campaigns, scenarios and outcomes."""

from __future__ import annotations

import re

from rmq_actors.settings.field_types import shown

_PATH_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


def why_no_path_name(name: object) -> str | None:
    """What such a name must be, if `name` is none."""
    if isinstance(name, str) and _PATH_NAME.fullmatch(name):
        return None
    return f"{shown(name)}: 1 to 100 letters, digits, dots, hyphens and underscores, the first a letter or digit"
