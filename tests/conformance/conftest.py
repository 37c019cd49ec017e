"""A cluster for programs that are not Trio's, or that run Trio themselves."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio

from rmq_actors import open_cluster


@pytest.fixture
def served_name_server(tmp_path: Path) -> Iterator[str]:
    """The name server of a broker, both in a Trio run of another thread, as another process would be."""
    addresses, ready, failures = list[str](), threading.Event(), list[BaseException]()
    stop: list[tuple[trio.lowlevel.TrioToken, trio.Event]] = []

    async def serve() -> None:
        async with open_cluster(tmp_path, slaves=0, name_server=True) as cluster:
            addresses.append(cluster.name_server_address or "")
            stop.append((trio.lowlevel.current_trio_token(), trio.Event()))
            ready.set()
            await stop[0][1].wait()

    def run() -> None:
        try:
            trio.run(serve)
        except BaseException as error:  # noqa: BLE001 - looked at below
            failures.append(error)
            ready.set()

    thread = threading.Thread(target=run)
    thread.start()
    assert ready.wait(60)
    try:
        assert failures == []
        yield addresses[0]
    finally:
        if stop:
            stop[0][0].run_sync_soon(stop[0][1].set)
        thread.join(60)
    assert failures == []
