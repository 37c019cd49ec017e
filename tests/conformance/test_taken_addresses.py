"""Whoever embeds a server is told which address is in use, and by no group of exceptions."""

from __future__ import annotations

import errno
import socket
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest

from rmq_actors.embedding.broker import load_broker_config, open_configured_broker
from rmq_actors.embedding.name_server import open_local_name_server
from rmq_actors.namesrv.config import NamesrvConfig
from rmq_actors.remoting.config import RemotingServerConfig


@pytest.fixture
def taken() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def broker(directory: Path, *lines: str) -> AbstractAsyncContextManager[object]:
    path = directory / "broker.conf"
    small = ("mappedFileSizeCommitLog=262144", "maxHashSlotNum=500", "maxIndexNum=2000")
    path.write_text("\n".join([f"storePathRootDir={directory}/store", *small, *lines, ""]))
    return open_configured_broker(load_broker_config(path))


async def refusal(server: AbstractAsyncContextManager[object]) -> OSError:
    with pytest.raises(OSError, match="in use") as caught:
        async with server:
            pass
    return caught.value


@pytest.mark.trio
@pytest.mark.parametrize(
    ("lines", "settings"),
    [
        (["listenPort=0", "haListenPort={}"], "haListenHost or bindAddress, haListenPort"),
        (["listenPort={}", "haListenPort=0"], "bindAddress, listenPort"),
    ],
)
async def test_a_broker(taken: int, lines: list[str], settings: str, tmp_path: Path) -> None:
    error = await refusal(broker(tmp_path, *(line.format(taken) for line in lines)))
    assert error.errno == errno.EADDRINUSE
    assert error.strerror == f"127.0.0.1:{taken}: Address already in use ({settings})"
    # And what had started has stopped.
    async with broker(tmp_path, "listenPort=0", "haListenPort=0"):
        pass


@pytest.mark.trio
async def test_a_name_server(taken: int, tmp_path: Path) -> None:
    config = NamesrvConfig(remoting=RemotingServerConfig(listen_port=taken))
    error = await refusal(open_local_name_server(tmp_path, config))
    assert error.errno == errno.EADDRINUSE
    assert error.strerror == f"127.0.0.1:{taken}: Address already in use (bindAddress, listenPort)"


def test_a_name_that_can_be_none() -> None:
    with pytest.raises(ValueError, match=f"listen_host: '{'x' * 70}' is no host's name or address"):
        RemotingServerConfig(listen_host="x" * 70, listen_port=1)
