"""The states of one end of a TCP connection, and what each event makes of them: RFC 9293, 3.3.2, as a table.

The world tells fewer states apart than the RFC in one place, and more in another:

- Nothing arrives twice, so nobody waits for that: once both ends have arrived, the connection is CLOSED, and there is
  no TIME_WAIT. LISTEN is not here, as a listener has no connection.
- Where the RFC's connection is deleted early, the end stays for as long as its socket does, and programs and peers see
  why: RESET, TIMED_OUT and ABORTED are the RFC's CLOSED.

There are no acknowledgements on the wire; `FIN_ACKED` comes with the arrival of the end at the other side.

Buffers, windows, timers and the socket's own state do not belong here: whether a socket is closed is no state of TCP.
"""

from __future__ import annotations

import enum
import errno
from collections.abc import Mapping
from typing import Final

import attrs


@attrs.frozen(eq=False)
class State:
    """One state, and what it means to those who look at it. Compare by identity."""

    name: str
    #: The handshake is not over at this end.
    connects: bool = False
    #: There is a connection that neither side has ended whole: it has a peer's address, and may be shut down.
    is_open: bool = False
    #: The program may write.
    may_write: bool = False
    #: The peer may send more: what the program reads reopens the window.
    receives: bool = False
    #: Nothing passes any more, in either direction.
    is_over: bool = False
    #: The connection has broken: reads end, writes break, and what arrives has no effect.
    is_broken: bool = False
    #: The system knows no such connection any more: what arrives is answered by a reset.
    refuses: bool = False

    def __repr__(self) -> str:
        """Its name."""
        return self.name

    @property
    def is_known(self) -> bool:
        """Whether the program's calls find a connection here, be it one that is over."""
        return not (self.connects or self is ABORTED)


SYN_SENT: Final = State("SYN_SENT", connects=True)
SYN_RECEIVED: Final = State("SYN_RECEIVED", connects=True)
ESTABLISHED: Final = State("ESTABLISHED", is_open=True, may_write=True, receives=True)
#: The program has ended what it sends, and the peer does not have the end yet.
FIN_WAIT_1: Final = State("FIN_WAIT_1", is_open=True, receives=True)
#: The peer has the end of what was sent here, and may send more.
FIN_WAIT_2: Final = State("FIN_WAIT_2", is_open=True, receives=True)
#: The peer has ended what it sends; the program may write.
CLOSE_WAIT: Final = State("CLOSE_WAIT", is_open=True, may_write=True)
#: Both have ended at once: the peer does not have the end yet.
CLOSING: Final = State("CLOSING", is_open=True)
#: Both have ended, the peer first: it does not have the end yet.
LAST_ACK: Final = State("LAST_ACK", is_open=True)
#: Both have ended, and both know.
CLOSED: Final = State("CLOSED", is_over=True)
#: The peer, or a fault, has reset the connection.
RESET: Final = State("RESET", is_over=True, is_broken=True)
#: Nothing was acknowledged for too long.
TIMED_OUT: Final = State("TIMED_OUT", is_over=True, is_broken=True, refuses=True)
#: Ended here without ceremony: closed with unread data, killed, without power, or given up before it was established.
ABORTED: Final = State("ABORTED", is_over=True, refuses=True)

STATES: Final = (
    SYN_SENT, SYN_RECEIVED, ESTABLISHED, FIN_WAIT_1, FIN_WAIT_2, CLOSE_WAIT, CLOSING, LAST_ACK, CLOSED,
    RESET, TIMED_OUT, ABORTED,
)  # fmt: skip


class Event(enum.Enum):
    """What may happen to an end."""

    #: A request has arrived: of a client, for which this end was made, or its own at itself (a simultaneous open).
    SYN = enum.auto()
    #: The second segment of the handshake has arrived.
    SYN_ACK = enum.auto()
    #: The third one, and the listener has room; later, a probe of the window.
    ACK = enum.auto()
    #: The peer's end has arrived, and the handshake is over here.
    FIN = enum.auto()
    #: This side's end has arrived at the peer.
    FIN_ACKED = enum.auto()
    #: A reset has arrived, or a fault resets the connection.
    RESET = enum.auto()
    #: The program ends what it sends: the end leaves after all that was written.
    SHUT_WRITE = enum.auto()
    #: The end is given up here, without ceremony.
    ABORT = enum.auto()
    #: Nothing was acknowledged for the retransmission time-out.
    TIME_OUT = enum.auto()


class ImpossibleEventError(Exception):
    """An event that a state does not allow: whatever drives the table has made a mistake."""


@attrs.frozen
class Step:
    """What an event makes of a state: the next one, and what follows for the peer and for the socket."""

    state: State
    #: Whether the segment that has arrived is to be answered by an ACK.
    answers: bool = False
    #: The errno that the socket's next call is to raise, if any.
    error: int = 0


#: After the peer's end has been received, a reset only breaks writes, as on Linux.
_RESET_AFTER_END: Final = Step(RESET, error=errno.EPIPE)
_RESET: Final = Step(RESET, error=errno.ECONNRESET)
_REFUSED: Final = Step(RESET, error=errno.ECONNREFUSED)
_ABORTED: Final = Step(ABORTED)
_TIMED_OUT: Final = Step(TIMED_OUT, error=errno.ETIMEDOUT)


def _synchronized(own: State, after_reset: Step, events: Mapping[Event, State]) -> Mapping[Event, Step]:
    """A row of a state in which the handshake is over: what is the same for all of them, and its own `events`."""
    return {
        Event.SYN_ACK: Step(own, answers=True),  # sent again, as the listener had no room for the third segment
        Event.ACK: Step(own),
        Event.RESET: after_reset,
        Event.ABORT: _ABORTED,
        Event.TIME_OUT: _TIMED_OUT,
        **{event: Step(state) for event, state in events.items()},
    }


def _ended(own: State, after_abort: State) -> Mapping[Event, Step]:
    """A row of a connection that has ended early: what was on its way changes nothing."""
    return {
        **{event: Step(own) for event in (Event.SYN_ACK, Event.ACK, Event.FIN, Event.FIN_ACKED, Event.RESET)},
        Event.ABORT: Step(after_abort),
    }


TABLE: Final[Mapping[State, Mapping[Event, Step]]] = {
    SYN_SENT: {
        Event.SYN: Step(SYN_RECEIVED),
        Event.SYN_ACK: Step(ESTABLISHED, answers=True),
        Event.RESET: _REFUSED,
        Event.ABORT: _ABORTED,
    },
    SYN_RECEIVED: {
        Event.ACK: Step(ESTABLISHED),
        Event.RESET: _REFUSED,
        Event.ABORT: _ABORTED,
    },
    ESTABLISHED: _synchronized(ESTABLISHED, _RESET, {Event.SHUT_WRITE: FIN_WAIT_1, Event.FIN: CLOSE_WAIT}),
    FIN_WAIT_1: _synchronized(FIN_WAIT_1, _RESET, {Event.FIN_ACKED: FIN_WAIT_2, Event.FIN: CLOSING}),
    FIN_WAIT_2: _synchronized(FIN_WAIT_2, _RESET, {Event.FIN: CLOSED}),
    CLOSE_WAIT: _synchronized(CLOSE_WAIT, _RESET_AFTER_END, {Event.SHUT_WRITE: LAST_ACK}),
    CLOSING: _synchronized(CLOSING, _RESET_AFTER_END, {Event.FIN_ACKED: CLOSED}),
    LAST_ACK: _synchronized(LAST_ACK, _RESET_AFTER_END, {Event.FIN_ACKED: CLOSED}),
    CLOSED: _synchronized(CLOSED, _RESET_AFTER_END, {}),
    RESET: _ended(RESET, ABORTED),
    TIMED_OUT: _ended(TIMED_OUT, TIMED_OUT),
    ABORTED: _ended(ABORTED, ABORTED),
}


def step(state: State, event: Event) -> Step:
    """What `event` makes of `state`. ImpossibleEventError if the state does not allow it."""
    found = TABLE[state].get(event)
    if found is None:
        raise ImpossibleEventError(f"a TCP connection in {state} has no {event.name}")
    return found
