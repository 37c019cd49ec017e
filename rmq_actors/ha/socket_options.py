"""The options of sockets between masters and slaves. Trio sets TCP_NODELAY, and nobody SO_LINGER, as in RocketMQ."""

from __future__ import annotations

import trio

from rmq_actors.ha.config import HaConfig


def set_buffer_sizes(socket: trio.socket.SocketType, config: HaConfig) -> None:
    """Give a connection the buffers that are configured. RocketMQ swaps the two. Raises `OSError`."""
    for option, size_bytes in (
        (trio.socket.SO_SNDBUF, config.ha_socket_snd_buf_size_bytes),
        (trio.socket.SO_RCVBUF, config.ha_socket_rcv_buf_size_bytes),
    ):
        if size_bytes:
            socket.setsockopt(trio.socket.SOL_SOCKET, option, size_bytes)
