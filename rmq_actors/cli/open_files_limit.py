"""How many files a server may have open: each connection is one, and each consume queue with unsynced entries."""

from __future__ import annotations

import resource


def allow_open_files() -> None:
    """Raise this process's limit as far as its user may, as Java does for RocketMQ: shells begin with 1,024."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
