"""How a TCP connection ends: half-close, close, reset, and calls that are cancelled."""

from __future__ import annotations

import trio
from trio.socket import SHUT_RD, SHUT_RDWR, SHUT_WR, SOL_SOCKET

from tests.parity.arena import (
    Arena,
    Seen,
    SocketBody,
    drain,
    fill,
    outcome,
    outcome_of,
    outcome_of_waiting,
    reset_by,
    settle,
)

# --- ending -----------------------------------------------------------------------------------------------------------


async def receive_after_the_end(arena: Arena) -> Seen:
    """After the peer's end: what is left, then b"" again and again."""
    client, server = await arena.pair()
    await client.send(b"last")
    client.close()
    return [await outcome(server.recv(100)), *[await outcome(server.recv(100)) for _ in range(3)]]


async def half_close_of_the_client(arena: Arena) -> Seen:
    """SHUT_WR by who connected: the other way stays open; sending is EPIPE."""
    client, server = await arena.pair()
    client.shutdown(SHUT_WR)
    seen: Seen = [
        await outcome(client.send(b"x")),
        await outcome(server.recv(1)),
        await outcome(server.send(b"answer")),
    ]
    return [
        *seen,
        await outcome(client.recv(100)),
        await outcome(client.recv(100)),
        outcome_of(client.shutdown, SHUT_WR),
    ]


async def half_close_of_the_server(arena: Arena) -> Seen:
    """SHUT_WR by who accepted: the other way stays open; sending is EPIPE."""
    client, server = await arena.pair()
    server.shutdown(SHUT_WR)
    seen: Seen = [
        await outcome(server.send(b"x")),
        await outcome(client.recv(1)),
        await outcome(client.send(b"answer")),
    ]
    server_reads = await outcome(server.recv(100))
    client.close()
    return [*seen, server_reads, await outcome(server.recv(100))]


async def end_follows_what_waits(arena: Arena) -> Seen:
    """SHUT_WR and close with full buffers: everything sent arrives, then the end."""
    client, server = await arena.pair(buffers_bytes=20_000)
    taken = await fill(client)
    client.shutdown(SHUT_WR)
    client.close()
    return [await drain(server, taken) == taken, await outcome(server.recv(1))]


async def shut_reading(arena: Arena) -> Seen:
    """SHUT_RD: what has arrived is read, then b"" instead of waiting; what the peer sends later is read too."""
    client, server = await arena.pair()
    await client.send(b"before")
    await settle()
    server.shutdown(SHUT_RD)
    seen: Seen = [
        await outcome(server.recv(100)),
        await outcome(server.recv(100)),
        await outcome(client.send(b"after")),
    ]
    await settle()
    return [*seen, await outcome(server.recv(100)), await outcome(server.recv(100)), await outcome(server.send(b"x"))]


async def shut_both(arena: Arena) -> Seen:
    """SHUT_RDWR: reads end, sends are EPIPE, the peer sees the end."""
    client, server = await arena.pair()
    client.shutdown(SHUT_RDWR)
    await settle()
    return [
        await outcome(client.recv(1)), await outcome(client.send(b"x")), await outcome(server.recv(1)),
        await outcome(server.send(b"y")),
    ]  # fmt: skip


async def shut_both_ends(arena: Arena) -> Seen:
    """Both send their end: both read it, and the connection is over."""
    client, server = await arena.pair()
    client.shutdown(SHUT_WR)
    server.shutdown(SHUT_WR)
    await settle()
    seen: Seen = [await outcome(client.recv(1)), await outcome(server.recv(1))]
    return [
        *seen,
        outcome_of(client.shutdown, SHUT_WR),
        outcome_of(client.shutdown, SHUT_RDWR),
        await outcome(client.send(b"x")),
    ]


async def shut_what_is_not_connected(arena: Arena) -> Seen:
    """shutdown() before connect, after a refusal, on a listener, and with a flag that is none."""
    fresh = arena.socket()
    client, _ = await arena.pair()
    listener = await arena.listener()
    return [
        outcome_of(fresh.shutdown, SHUT_WR), outcome_of(fresh.shutdown, SHUT_RD),
        outcome_of(client.shutdown, 7), outcome_of(listener.shutdown, SHUT_WR),
    ]  # fmt: skip


async def shut_a_listener(arena: Arena) -> Seen:
    """SHUT_RD ends listening: accept() is EINVAL, who connects is refused."""
    listener = await arena.listener()
    address = listener.getsockname()
    return [
        outcome_of(listener.shutdown, SHUT_RD),
        await outcome(listener.accept()),
        await outcome(arena.socket().connect(address)),
    ]


async def simultaneous_close(arena: Arena) -> Seen:
    """Both close at once: nobody is reset, and the ports are free of sockets."""
    client, server = await arena.pair()
    client.close()
    server.close()
    await settle()
    return [client.fileno(), server.fileno()]


async def send_to_a_closed_peer(arena: Arena) -> Seen:
    """The first send after the peer's close is taken; then its reset has come: EPIPE, and b"" to read."""
    client, server = await arena.pair()
    server.close()
    await settle()
    first = await outcome(client.send(b"x"))
    await settle()
    return [
        first, await outcome(client.send(b"x")), await outcome(client.send(b"x")), await outcome(client.recv(1)),
        outcome_of(client.getpeername), outcome_of(client.shutdown, SHUT_WR),
    ]  # fmt: skip


async def reset_is_received(arena: Arena) -> Seen:
    """A reset: ECONNRESET once, then b"" to read and EPIPE to send."""
    client, server = await arena.pair()
    reset_by(server)
    await settle()
    return [
        await outcome(client.recv(1)), await outcome(client.recv(1)), await outcome(client.send(b"x")),
        await outcome(client.send(b"x")),
    ]  # fmt: skip


async def reset_is_met_by_a_send(arena: Arena) -> Seen:
    """A reset met by a send: ECONNRESET once, then EPIPE to send and b"" to read."""
    client, server = await arena.pair()
    reset_by(server)
    await settle()
    return [await outcome(client.send(b"x")), await outcome(client.send(b"x")), await outcome(client.recv(1))]


async def reset_keeps_what_has_arrived(arena: Arena) -> Seen:
    """What arrived before a reset."""
    client, server = await arena.pair()
    await server.send(b"before")
    await settle()
    reset_by(server)
    await settle()
    return [
        await outcome(client.recv(3)),
        await outcome(client.recv(100)),
        await outcome(client.recv(100)),
        await outcome(client.recv(100)),
    ]


async def reset_after_the_end(arena: Arena) -> Seen:
    """The peer's end, then a reset: reads go on to give b"", a send is EPIPE."""
    client, server = await arena.pair()
    server.shutdown(SHUT_WR)
    await settle()
    reset_by(server)
    await settle()
    return [await outcome(client.recv(1)), await outcome(client.send(b"x")), await outcome(client.recv(1))]


async def reset_after_the_end_is_met_by_a_send(arena: Arena) -> Seen:
    """The peer's end, then a reset, met by a send first."""
    client, server = await arena.pair()
    server.shutdown(SHUT_WR)
    await settle()
    reset_by(server)
    await settle()
    return [await outcome(client.send(b"x")), await outcome(client.send(b"x")), await outcome(client.recv(1))]


async def reset_on_unread_data(arena: Arena) -> Seen:
    """Closing with unread data resets the peer."""
    client, server = await arena.pair()
    await client.send(b"never read")
    await settle()
    server.close()
    await settle()
    return [await outcome(client.recv(1)), await outcome(client.recv(1)), await outcome(client.send(b"x"))]


async def reset_on_data_after_close(arena: Arena) -> Seen:
    """Data that arrives after a close is answered by a reset, also if something was sent before."""
    client, server = await arena.pair()
    await server.send(b"good bye")
    server.close()
    await settle()
    sent = await outcome(client.send(b"too late"))
    await settle()
    return [sent, await outcome(client.recv(100)), await outcome(client.recv(100)), await outcome(client.send(b"x"))]


async def reset_wakes_who_waits(arena: Arena) -> Seen:
    """A reset wakes a receiver with ECONNRESET, and a sender too."""
    client, server = await arena.pair()
    seen: Seen = [await outcome_of_waiting(client.recv(1), lambda: reset_by(server))]
    client, server = await arena.pair(buffers_bytes=20_000)
    await fill(client)
    return [*seen, await outcome_of_waiting(client.send(b"x"), lambda: reset_by(server))]


async def names_before_and_after(arena: Arena) -> Seen:
    """getsockname and getpeername before connecting, after the peer's end, after a reset."""
    fresh = arena.socket()
    seen: Seen = [outcome_of(fresh.getsockname), outcome_of(fresh.getpeername)]
    client, server = await arena.pair()
    names = (client.getsockname(), client.getpeername())
    server.shutdown(SHUT_WR)
    await settle()
    seen.append((client.getsockname(), client.getpeername()) == names)
    reset_by(server)
    await settle()
    return [*seen, client.getsockname() == names[0], outcome_of(client.getpeername)]


async def error_is_told_once(arena: Arena) -> Seen:
    """SO_ERROR gives a reset's error once; after that reads end and sends are EPIPE."""
    client, server = await arena.pair()
    seen: Seen = [client.getsockopt(SOL_SOCKET, trio.socket.SO_ERROR)]
    reset_by(server)
    await settle()
    seen += [client.getsockopt(SOL_SOCKET, trio.socket.SO_ERROR) for _ in range(2)]
    return [*seen, await outcome(client.recv(1)), await outcome(client.send(b"x"))]


async def call_before_connecting(arena: Arena) -> Seen:
    """recv is ENOTCONN and send EPIPE on a socket that is not connected; on a listener too."""
    fresh, listener = arena.socket(), await arena.listener()
    return [
        await outcome(fresh.recv(1)), await outcome(fresh.recv_into(bytearray(1))), await outcome(fresh.send(b"x")),
        await outcome(fresh.sendmsg([b"x"])), await outcome(fresh.send(b"")), await outcome(fresh.recv(0)),
        await outcome(listener.recv(1)), await outcome(listener.send(b"x")), outcome_of(listener.getpeername),
    ]  # fmt: skip


# --- closing and cancelling -------------------------------------------------------------------------------------------


async def close_twice(arena: Arena) -> Seen:
    """A second close does nothing."""
    client, server = await arena.pair()
    return [outcome_of(client.close), outcome_of(client.close), await outcome(server.recv(1))]


async def close_wakes_who_waits(arena: Arena) -> Seen:
    """Closing wakes who waits on the socket: recv, recv_into, accept, send, wait_writable get ClosedResourceError."""
    listener = await arena.listener()
    reader, filler = [(await arena.pair())[0] for _ in range(2)]
    seen: Seen = [
        await outcome_of_waiting(reader.recv(1), reader.close),
        await outcome_of_waiting(filler.recv_into(bytearray(1)), filler.close),
        await outcome_of_waiting(listener.accept(), listener.close),
    ]
    sender, waiter = [(await arena.pair(buffers_bytes=20_000))[0] for _ in range(2)]
    await fill(sender)
    await fill(waiter)
    seen.append(await outcome_of_waiting(sender.send(b"x"), sender.close))
    return [*seen, await outcome_of_waiting(waiter.wait_writable(), waiter.close)]


async def one_at_a_time(arena: Arena) -> Seen:
    """A second task that receives, sends or accepts on a socket: BusyResourceError; one of each is fine."""
    client, _ = await arena.pair(buffers_bytes=20_000)
    listener = await arena.listener()
    await fill(client)
    seen: Seen = []
    async with trio.open_nursery() as nursery:
        nursery.start_soon(client.recv, 1)
        nursery.start_soon(client.send, b"x")
        nursery.start_soon(listener.accept)
        await settle()
        seen += [await outcome(client.recv(1)), await outcome(client.send(b"x")), await outcome(client.wait_writable())]
        seen.append(await outcome(listener.accept()))
        nursery.cancel_scope.cancel()
    return seen


async def receive_is_cancelled(arena: Arena) -> Seen:
    """A cancelled recv or recv_into has taken nothing."""
    client, server = await arena.pair()
    into = bytearray(3)
    seen: Seen = [await outcome(server.recv(10)), await outcome(server.recv_into(into)), bytes(into)]
    await client.send(b"whole")
    return [*seen, await outcome(server.recv(10))]


async def send_all_is_cancelled(arena: Arena) -> Seen:
    """A cancelled send_all has sent a part, which arrives; the connection goes on."""
    client, server = await arena.pair(buffers_bytes=20_000)
    stream = trio.SocketStream(client)
    seen: Seen = [await outcome(stream.send_all(bytes(5_000_000)))]
    part = await drain(server, 5_000_000)
    seen += [0 < part < 5_000_000, await outcome(stream.send_all(b"more"))]
    return [*seen, await outcome(server.recv(100))]


async def cancelled_beforehand(arena: Arena) -> Seen:
    """In a scope that is cancelled already no call does anything, not even one that need not wait."""
    client, server = await arena.pair()
    await client.send(b"x")
    listener = await arena.listener()
    await arena.socket().connect(listener.getsockname())
    await settle()
    done: Seen = []
    calls = (
        lambda: server.recv(1), lambda: server.send(b"y"), lambda: server.sendmsg([b"y"]),
        lambda: server.recv_into(bytearray(1)), listener.accept, server.wait_writable,
        lambda: listener.bind(("", 0)),
    )  # fmt: skip
    for call in calls:
        with trio.CancelScope() as scope:
            scope.cancel()
            done.append(await outcome(call()))
    return [*done, await outcome(server.recv(1)), await outcome(client.recv(1)), (await arena.accept(listener)).type]


CASES: tuple[SocketBody, ...] = (
    receive_after_the_end,
    half_close_of_the_client,
    half_close_of_the_server,
    end_follows_what_waits,
    shut_reading,
    shut_both,
    shut_both_ends,
    shut_what_is_not_connected,
    shut_a_listener,
    simultaneous_close,
    send_to_a_closed_peer,
    reset_is_received,
    reset_is_met_by_a_send,
    reset_keeps_what_has_arrived,
    reset_after_the_end,
    reset_after_the_end_is_met_by_a_send,
    reset_on_unread_data,
    reset_on_data_after_close,
    reset_wakes_who_waits,
    names_before_and_after,
    error_is_told_once,
    call_before_connecting,
    close_twice,
    close_wakes_who_waits,
    one_at_a_time,
    receive_is_cancelled,
    send_all_is_cancelled,
    cancelled_beforehand,
)
