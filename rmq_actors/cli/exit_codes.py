"""What the exit codes of the commands mean."""

from __future__ import annotations

import enum


class ExitCode(enum.IntEnum):
    """0 is success."""

    OK = 0
    CHECK_FAILED = 1
    BAD_INPUT = 2
    CRASH = 3
    LIVENESS = 4
