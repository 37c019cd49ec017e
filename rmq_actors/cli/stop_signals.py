"""Which signals stop a server in order."""

from __future__ import annotations

import signal


def stop_signals() -> list[signal.Signals]:
    """SIGTERM, SIGINT, and SIGHUP, as for a JVM: SIGHUP stays ignored where it was, as nohup has it."""
    signals = [signal.SIGTERM, signal.SIGINT]
    # A terminal that closes would end the process at once otherwise, and leave `abort`.
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        signals.append(signal.SIGHUP)
    return signals
