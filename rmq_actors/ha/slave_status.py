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
class Replicas:
    """How many copies of the log there are, the master's own among them, and how many a put needs."""

    there: int
    needed: int
    #: The setting that says so; "" where no put waits for a slave.
    key: str = ""

    @property
    def are_too_few(self) -> bool:
        """Whether no put is confirmed."""
        return self.there < self.needed

    def __str__(self) -> str:
        if not self.key:
            return f"{self.there}; no put waits for a slave"
        text = f"{self.there} of {self.key}={self.needed} copies"
        return f"{text}: puts are answered SLAVE_NOT_AVAILABLE" if self.are_too_few else text


@attrs.frozen
class HaCounters:
    """What has happened on a master's HA port since its start. `ends`: how many connections ended, by reason."""

    connections: int
    refused_connections: int
    sent_bytes: int
    ends: dict[str, int]
