"""What was written to a simulated connection leaves as the window allows, and nothing leaves that was dropped."""

from __future__ import annotations

from typing import cast

from sim_net.kernel.kernel import Kernel
from sim_net.net.lane import Lane
from sim_net.net.link import Link
from sim_net.net.segment import ACK, DATA, FIN, Payload
from sim_net.net.send_buffer import SendBuffer


class Surroundings:
    """The end, the lane, the link and the kernel of one send buffer."""

    def __init__(self) -> None:
        self.peer_is_gone = self.stalls = self.cuts = self.blocked = False
        self.now_s = 0.0
        self.sent: list[tuple[int, Payload]] = []
        self.told: list[str] = []
        self.timers: list[float] = []
        self.buffer = SendBuffer(
            cast("Kernel", self),
            self,
            cast("Link", self),
            cast("Lane", self),
            lambda size: size,
            size_bytes=12,
            segment_bytes=4,
        )

    def put(self, data: bytes) -> int | None:
        return self.buffer.put([memoryview(data)], len(data))

    def transmit(self, kind: int, payload: Payload) -> None:
        self.sent.append((kind, payload))

    def transmit_in(self, after_s: float, kind: int, payload: Payload) -> None:
        self.sent.append((kind, payload))

    def wait_for_acks(self) -> None:
        self.told.append("waits for acks")

    def left(self) -> None:
        """A writer may go on."""

    def record(self, kind: str, **attributes: str | float) -> None:
        self.told.append(kind)

    def timer_at(self, at_s: float, _: object) -> Surroundings:
        self.timers.append(at_s)
        return self

    def cancel(self) -> None:
        self.timers.clear()


def test_what_is_written_leaves_in_segments_as_far_as_the_window_goes() -> None:
    all_of_it = Surroundings()
    all_of_it.buffer.opened(6)
    assert all_of_it.put(b"0123456789abcdef") == 12
    assert all_of_it.sent == [(DATA, b"0123"), (DATA, b"45")]
    assert (all_of_it.put(b"no"), all_of_it.put(b"no room")) == (2, 4)
    assert all_of_it.put(b"at all") is None
    has_room = [all_of_it.buffer.has_room]
    all_of_it.buffer.end()
    assert len(all_of_it.sent) == 2
    all_of_it.buffer.reopened(100)
    assert [kind for kind, _ in all_of_it.sent[2:]] == [DATA, DATA, DATA, FIN]
    assert b"".join(data for _, data in all_of_it.sent[:-1] if isinstance(data, bytes)) == b"0123456789abnono r"
    has_room.append(all_of_it.buffer.has_room)
    assert has_room == [False, True]
    assert all_of_it.buffer.is_empty


def test_the_end_is_sent_once() -> None:
    end = Surroundings()
    end.buffer.end()
    end.buffer.pump()
    assert end.sent == [(FIN, 0)]


def test_nothing_leaves_after_it_was_dropped_the_end_neither() -> None:
    dropped = Surroundings()
    dropped.buffer.opened(100)
    dropped.stalls = True
    assert dropped.put(b"data") == 4
    dropped.buffer.end()
    dropped.buffer.drop()
    dropped.stalls = False
    dropped.buffer.pump()
    assert dropped.sent == []
    assert dropped.buffer.is_empty


def test_a_window_is_asked_for_when_the_peer_is_gone_and_something_waits() -> None:
    asking = Surroundings()
    asking.buffer.peer_has_gone()
    asking.buffer.ask_for_window()
    assert (asking.sent, asking.timers) == ([], [])
    asking.put(b"data")
    asking.peer_is_gone = True
    asking.buffer.peer_has_gone()
    assert asking.timers == [0.2]
    asking.blocked = True
    asking.buffer.ask_for_window()
    assert asking.sent == []
    asking.blocked = False
    asking.buffer.ask_for_window()
    assert asking.sent == [(ACK, 0)]


def test_what_waits_on_a_cut_link_waits_for_acks() -> None:
    cut = Surroundings()
    cut.cuts = True
    cut.put(b"data")
    assert cut.told == ["waits for acks"]
