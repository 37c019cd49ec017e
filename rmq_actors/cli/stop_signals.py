"""Which signals stop a server in order."""

from __future__ import annotations

import signal


def stop_signals() -> list[signal.Signals]:
    """SIGTERM, SIGINT and SIGHUP, as for a JVM; SIGHUP stays ignored if it was, as under nohup."""
    signals = [signal.SIGTERM, signal.SIGINT]
    # Otherwise a closing terminal would end the process at once, and leave `abort`.
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        signals.append(signal.SIGHUP)
    return signals
