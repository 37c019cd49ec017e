"""What a master knows of its slaves: for logs, metrics and commands."""

from __future__ import annotations

import attrs


@attrs.frozen
class SlaveStatus:
    """One connection, as it is now. `ack_offset`, `lag_bytes` and `last_ack_age_s`: None before its first report.

    `lag_bytes` is what the slave has not confirmed of the master's log; `next_offset` is what it is sent next.
    """

    conn_id: int
    peer: str
    connected_s: float
    sent_bytes: int
    ack_offset: int | None
    lag_bytes: int | None
    last_ack_age_s: float | None
    next_offset: int | None = None

    def __str__(self) -> str:
        if self.ack_offset is None:
            return f"slave {self.peer}: nothing reported yet, connected for {self.connected_s:.0f} s"
        return (
            f"slave {self.peer}: {self.lag_bytes} bytes behind the master, last report {self.last_ack_age_s:.1f} s ago"
            f", {self.sent_bytes} bytes sent in {self.connected_s:.0f} s"
        )


@attrs.frozen
class HaCounters:
    """What has happened on a master's HA port since its start. `ends`: how many connections ended, by reason."""

    connections: int
    refused_connections: int
    sent_bytes: int
    ends: dict[str, int]
