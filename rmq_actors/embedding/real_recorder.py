"""The recorder of what runs on the real machine."""

from __future__ import annotations

import time

from rmq_actors.tracing.event import RunInfo
from rmq_actors.tracing.recorder import Recorder


def real_recorder(run: RunInfo, *, keep: bool = False) -> Recorder:
    """A recorder on the machine's clock. It keeps nothing by itself: subscribe a spool to it."""
    return Recorder(run, lambda: (None, time.time_ns()), keep=keep)
