"""Trio context managers, a whole cluster among them, held open for the length of an asyncio block."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import attrs
import pytest
import trio

from rmq_actors.actors.asyncio_host import TrioEnded, TrioGuest, run_in_asyncio
from rmq_actors.actors.messages.actor import Actor, Context
from rmq_actors.actors.messages.ref import Request
from rmq_actors.actors.system import open_actor_system
from rmq_actors.embedding.cluster import RealCluster, log_sha256, open_cluster
from rmq_actors.protocols.put_completion import PutStatus
from rmq_actors.store.config import BrokerRole, MessageStoreConfig
from rmq_actors.wire.record import Message
from tests.conformance.guest_runs import Journal, expire, service, sleeping, until, with_guest


def test_a_context_is_open_for_the_length_of_a_block() -> None:
    journal: Journal = []

    async def main(guest: TrioGuest) -> None:
        async with guest.enter(service(journal)) as value:
            assert value == "ready"
            await until(lambda: journal)
            journal.append("body")
        assert journal == ["began", "body", "left", "cleaned up"]

    with_guest(main)


def test_an_error_of_the_block_is_raised_in_the_context() -> None:
    journal: Journal = []

    async def main(guest: TrioGuest) -> None:
        with pytest.RaisesGroup(pytest.RaisesExc(ValueError, match="in the body")):
            async with guest.enter(service(journal)):
                await until(lambda: journal)
                raise ValueError("in the body")
        assert journal == ["began", "ValueError('in the body')", "cleaned up"]

    with_guest(main)


def test_an_error_that_the_context_swallows_is_gone() -> None:
    @contextlib.asynccontextmanager
    async def swallowing() -> AsyncIterator[None]:
        with contextlib.suppress(ValueError):
            yield

    async def main(guest: TrioGuest) -> None:
        async with guest.enter(swallowing()):
            raise ValueError("in the body")

    with_guest(main)


def test_a_cancelled_block_cancels_its_context() -> None:
    journal: Journal = []

    async def main(guest: TrioGuest) -> None:
        async def limited() -> None:
            async with asyncio.timeout(None) as timeout, guest.enter(service(journal)):
                await until(lambda: journal)
                expire(timeout)
                await asyncio.sleep(3600)

        with pytest.raises(TimeoutError):
            await limited()
        assert journal == ["began", "cancelled", "cleaned up"]

    with_guest(main)


@contextlib.asynccontextmanager
async def slow_context(journal: Journal, *, entering: bool, leaving: bool) -> AsyncIterator[None]:
    try:
        if entering:
            await sleeping(journal)
        yield
        if leaving:
            await sleeping(journal)
    finally:
        journal.append("closed")


@pytest.mark.parametrize("phase", ["entering", "leaving"])
def test_a_cancellation_while_entering_or_leaving(phase: str) -> None:
    journal: Journal = []

    async def main(guest: TrioGuest) -> None:
        async def block() -> None:
            async with guest.enter(slow_context(journal, entering=phase == "entering", leaving=phase == "leaving")):
                journal.append("body")

        task = asyncio.create_task(block())
        await until(lambda: "began" in journal)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert journal == [*(["body"] if phase == "leaving" else []), "began", "cleaned up", "closed"]

    with_guest(main)


def test_a_context_that_cannot_be_entered_says_why() -> None:
    async def listen() -> None:
        await trio.lowlevel.checkpoint()
        raise OSError("address in use")

    @contextlib.asynccontextmanager
    async def in_use() -> AsyncIterator[None]:
        await listen()
        yield

    async def main(guest: TrioGuest) -> None:
        with pytest.raises(OSError, match="address in use"):
            async with guest.enter(in_use()):
                pytest.fail("was entered")

    with_guest(main)


@contextlib.asynccontextmanager
async def failing(fail: trio.Event, error: Exception) -> AsyncIterator[None]:
    """A Trio context whose own task fails once the event is set."""

    async def crash() -> None:
        await fail.wait()
        raise error

    async with trio.open_nursery() as nursery:
        nursery.start_soon(crash)
        yield


def test_a_context_that_fails_cancels_its_block_and_says_why() -> None:
    journal: Journal = []

    async def main(guest: TrioGuest) -> None:
        fail = trio.Event()
        with pytest.RaisesGroup(pytest.RaisesExc(OSError, match="disk is gone")):
            async with guest.enter(failing(fail, OSError("disk is gone"))):
                fail.set()
                try:
                    await asyncio.sleep(3600)
                finally:
                    journal.append("the body was cancelled")
        assert journal == ["the body was cancelled"]
        task = asyncio.current_task()
        assert task is not None
        assert not task.cancelling()
        await asyncio.sleep(0)  # and no cancellation is left over

    with_guest(main)


def test_a_block_that_ignores_its_cancellation_raises_all_the_same() -> None:
    async def main(guest: TrioGuest) -> None:
        with pytest.RaisesGroup(pytest.RaisesExc(OSError, match="disk is gone")):
            async with guest.enter(failing(fail := trio.Event(), OSError("disk is gone"))):
                fail.set()
                task = asyncio.current_task()
                assert task is not None
                while not task.cancelling():
                    with contextlib.suppress(asyncio.CancelledError):
                        await asyncio.sleep(0)
        await asyncio.sleep(0)  # nor is a cancellation left over

    with_guest(main)


def test_a_context_that_just_ends_is_an_error() -> None:
    @contextlib.asynccontextmanager
    async def giving_up() -> AsyncIterator[None]:
        with trio.move_on_after(0.001):
            yield

    async def main(guest: TrioGuest) -> None:
        with pytest.raises(TrioEnded, match="ended before its block did"):
            async with guest.enter(giving_up()):
                await asyncio.sleep(3600)

    with_guest(main)


@attrs.frozen
class Fetch(Request[str]):
    """Which page an asyncio library shall fetch."""

    page: str


class Fetcher(Actor[Fetch]):
    """A Trio actor that leans on asyncio code."""

    async def handle(self, message: Fetch, context: Context[Fetch]) -> None:
        async def fetch() -> str:
            await asyncio.sleep(0)
            return message.page.upper()

        context.reply(message, await run_in_asyncio(fetch))


def test_actors_in_an_asyncio_program() -> None:
    async def main(guest: TrioGuest) -> None:
        async with guest.enter(open_actor_system("system")) as system:
            fetcher = await guest.run(system.spawn, "fetcher", Fetcher)

            async def ask(page: str) -> str:
                return await fetcher.ask(Fetch(page), timeout_s=60)

            assert await asyncio.gather(*(guest.run(ask, page) for page in "abc")) == ["A", "B", "C"]

    with_guest(main)


def test_a_cluster_in_an_asyncio_program(tmp_path: Path) -> None:
    async def main(guest: TrioGuest) -> None:
        async with guest.enter(open_cluster(tmp_path, slaves=1)) as cluster:
            async with asyncio.TaskGroup() as group:
                puts = [
                    group.create_task(guest.run(cluster.master.put_message, Message("Topic", f"{number}".encode())))
                    for number in range(20)
                ]
            assert {put.result().status for put in puts} == {PutStatus.PUT_OK}
            await guest.run(cluster.wait_until_replicated)
            logs = {log_sha256(broker.store.commit_log) for broker in (cluster.master, *cluster.slaves)}
            assert len(logs) == 1

    with_guest(main)


def test_a_cluster_that_is_cancelled_stops_and_can_be_opened_again(tmp_path: Path) -> None:
    store = MessageStoreConfig(broker_role=BrokerRole.SYNC_MASTER, mapped_file_size_commit_log_bytes=1 << 20)

    def cluster_alone() -> contextlib.AbstractAsyncContextManager[RealCluster]:
        return open_cluster(tmp_path, slaves=0, store=store)

    async def main(guest: TrioGuest) -> None:
        async def limited() -> None:
            async with asyncio.timeout(None) as timeout, guest.enter(cluster_alone()) as cluster:
                await guest.run(cluster.master.put_message, Message("Topic", b"nobody follows"))
                expire(timeout)
                await guest.run(cluster.master.store.wait_for_slaves, 1)

        with pytest.raises(TimeoutError):
            await limited()
        async with guest.enter(cluster_alone()) as cluster:
            assert cluster.master.store.commit_log.max_offset > 0

    with_guest(main)
