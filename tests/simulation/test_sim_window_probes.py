"""A sender before a shut window asks for it, and so finds out about a peer whose reset was lost."""

from __future__ import annotations

import errno
import itertools

import attrs
import pytest
import trio

from sim_net import Loss, Node, Partition, Stall, WorldConfig
from sim_net.net.window_probe import next_probe_s
from tests.worlds.socket_pair import PORT, STEADY_LINK, Program, run_pair

PATIENT = WorldConfig(link=attrs.evolve(STEADY_LINK, retransmit_timeout_s=100.0))

WINDOW_BYTES = 65_536
LOST_RESET = Loss(at_s=2.0, duration_s=1.0, a="server", b="client", probability=1.0, two_way=False)


def resetting(at_s: float, *, reads_at_s: float | None = None) -> Program:
    """A server that closes with unread data at a time, and reads what is there at another."""

    async def main(node: Node) -> None:
        listener = trio.socket.socket()
        await listener.bind((node.address, PORT))
        listener.listen()
        sock, _ = await listener.accept()
        if reads_at_s is not None:
            await trio.sleep_until(reads_at_s)
            assert len(await sock.recv(WINDOW_BYTES)) == WINDOW_BYTES
        await trio.sleep_until(at_s)
        sock.close()
        await trio.sleep_forever()

    return main


def sending(size: int, error: int, at_s: float, *, begin_s: float = 1.0) -> Program:
    """A client that fills the window, sends `size` more bytes later, and gets an error at a time."""

    async def main(node: Node) -> None:
        stream = await trio.open_tcp_stream("server", PORT)
        await stream.send_all(bytes(WINDOW_BYTES))
        await trio.sleep_until(begin_s)
        with pytest.raises(trio.BrokenResourceError) as raised:
            await stream.send_all(bytes(size))
        assert isinstance(raised.value.__cause__, OSError)
        assert raised.value.__cause__.errno == error
        assert trio.current_time() == pytest.approx(at_s)

    return main


def test_probes_are_sent_after_twice_the_time_each_up_to_two_minutes() -> None:
    times = [10.0]
    for _ in range(14):
        times.append(next_probe_s(10.0, times[-1]))
    gaps = [round(later - earlier, 6) for earlier, later in itertools.pairwise(times)]
    assert gaps == [0.2 * 2**n for n in range(10)] + [120.0] * 4
    assert next_probe_s(10.0, 10.5) == pytest.approx(10.6)
    assert next_probe_s(0.0, 86_400.0) - 86_400.0 <= 120.0


def test_a_reset_lost_on_the_way_is_found_out_by_the_next_probe() -> None:
    # The window is shut from 1.003 s on (a handshake, and no byte more than it): probes at 0.2, 0.6, 1.4, 3.0 s after.
    run_pair(resetting(2.5), sending(300_000, errno.ECONNRESET, 1.002 + 3.0 + 0.002), LOST_RESET, config=PATIENT)


def test_who_writes_after_the_reset_was_lost_finds_out_too() -> None:
    run_pair(
        resetting(2.5), sending(300_000, errno.ECONNRESET, 6.0 + 0.2 + 0.002, begin_s=6.0), LOST_RESET, config=PATIENT
    )


def test_a_window_that_opens_begins_the_probes_again() -> None:
    loss = Loss(at_s=50.1, duration_s=0.05, a="server", b="client", probability=1.0, two_way=False)
    # The window opens at 50.001 s, and is full again at once.
    run_pair(
        resetting(50.12, reads_at_s=50.0),
        sending(300_000, errno.ECONNRESET, 50.001 + 0.2 + 0.002),
        loss,
        config=PATIENT,
    )


def test_a_probe_finds_out_while_the_link_is_stalled() -> None:
    stall = Stall(at_s=1.5, duration_s=500.0, a="client", b="server")
    run_pair(resetting(2.5), sending(300_000, errno.ECONNRESET, 1.002 + 3.0 + 0.002), LOST_RESET, stall, config=PATIENT)


def test_probes_that_are_never_answered_end_in_a_time_out() -> None:
    loss = Loss(at_s=2.0, duration_s=5000.0, a="server", b="client", probability=1.0, two_way=False)
    run_pair(resetting(2.5), sending(300_000, errno.ETIMEDOUT, 1.002 + 3.0 + 0.002 + 100.0), loss, config=PATIENT)


def test_probes_whose_answers_are_cut_off_end_in_a_time_out() -> None:
    cut = Partition(at_s=2.0, duration_s=5000.0, a="server", b="client", two_way=False)
    run_pair(resetting(2.5), sending(300_000, errno.ETIMEDOUT, 1.002 + 3.0 + 0.001 + 100.0), cut, config=PATIENT)


def test_probes_that_are_lost_themselves_end_in_a_time_out() -> None:
    lost = Loss(at_s=3.0, duration_s=5000.0, a="client", b="server", probability=1.0, two_way=False)
    run_pair(
        resetting(2.5), sending(300_000, errno.ETIMEDOUT, 1.002 + 3.0 + 0.001 + 100.0), LOST_RESET, lost, config=PATIENT
    )


def test_a_shut_window_of_a_peer_that_lives_costs_nothing() -> None:
    def events(wait_s: float) -> int:
        async def waiting(node: Node) -> None:
            stream = await trio.open_tcp_stream("server", PORT)
            with trio.move_on_after(wait_s) as scope:
                await stream.send_all(bytes(300_000))
            assert scope.cancelled_caught
            await trio.aclose_forcefully(stream)

        return run_pair(resetting(1e6), waiting, config=PATIENT).events

    assert events(10.0) == events(100_000.0)
