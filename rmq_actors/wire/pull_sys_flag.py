"""The bits of a pull's sysFlag (PullSysFlag)."""

from __future__ import annotations

import enum


class PullSysFlag(enum.IntFlag):
    """What a pull asks for besides messages."""

    COMMIT_OFFSET = 1
    SUSPEND = 2
    SUBSCRIPTION = 4
    CLASS_FILTER = 8
    LITE_PULL = 16
