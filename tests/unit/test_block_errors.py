"""What a block raises leaves it without a nursery's group; what else fails is not lost for that."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest
import trio

from rmq_actors import (
    CLUSTER_STORE,
    Concurrently,
    MessageRefused,
    load_broker_config,
    open_admin,
    open_asyncio_client,
    open_cluster,
    open_configured_broker,
    open_local_name_server,
    open_message_store,
    open_producer,
    open_pull_consumer,
    open_push_consumer,
    open_trio_guest,
)
from rmq_actors.actors.block_errors import block_errors_bare
from rmq_actors.client.message_ext import MessageExt
from rmq_actors.client.message_listener import ConsumeConcurrentlyContext
from rmq_actors.embedding.remoting_client import open_remoting_client
from rmq_actors.wire.record import Message

#: Port 1 of this host: nobody listens there.
NOBODY = "127.0.0.1:1"


@contextlib.asynccontextmanager
async def nursery_around(beside: Callable[[], Awaitable[object]] = trio.sleep_forever) -> AsyncIterator[int]:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(beside)
        try:
            yield 7
        except BaseException:
            nursery.cancel_scope.cancel()
            raise
        nursery.cancel_scope.cancel()


async def fails() -> None:
    raise OSError("beside")


async def fails_when_cancelled() -> None:
    try:
        await trio.sleep_forever()
    finally:
        raise OSError("beside")


@pytest.mark.trio
@pytest.mark.parametrize(
    "error", [ValueError("mine"), KeyboardInterrupt(), SystemExit(3), ExceptionGroup("mine", [ValueError("mine")])]
)
async def test_what_the_block_raises_leaves_it_bare(error: BaseException) -> None:
    error.__context__ = before = KeyError("before")
    with pytest.raises(type(error)) as raised:
        async with block_errors_bare(nursery_around()):
            raise error
    assert raised.value is error
    assert (error.__context__, before.__context__) == (before, None)


@pytest.mark.trio
async def test_the_cause_and_the_context_of_an_error_are_its_own() -> None:
    with pytest.raises(ValueError, match="mine") as raised:
        async with block_errors_bare(block_errors_bare(nursery_around())):
            raise ValueError("mine") from KeyError("why")
    assert repr(raised.value.__cause__) == "KeyError('why')"
    assert raised.value.__context__ is None
    assert raised.value.__suppress_context__


@pytest.mark.trio
async def test_an_error_without_a_context_gets_none() -> None:
    with pytest.raises(ValueError, match="mine") as raised:
        async with block_errors_bare(nursery_around()):
            raise ValueError("mine")
    assert raised.value.__context__ is None
    assert "ExceptionGroup" not in "".join(traceback.format_exception(raised.value))


@pytest.mark.trio
async def test_what_both_raise_leaves_in_a_group() -> None:
    with pytest.RaisesGroup(pytest.RaisesExc(ValueError, match="mine"), pytest.RaisesExc(OSError, match="beside")):
        async with block_errors_bare(nursery_around(fails_when_cancelled)):
            await trio.lowlevel.checkpoint()
            raise ValueError("mine")


@pytest.mark.trio
async def test_what_the_tasks_alone_raise_leaves_in_a_group() -> None:
    with pytest.RaisesGroup(pytest.RaisesExc(OSError, match="beside")):
        async with block_errors_bare(nursery_around(fails)):
            await trio.sleep_forever()


@pytest.mark.trio
async def test_a_cancellation_reaches_the_scope_that_it_belongs_to() -> None:
    after = list[str]()
    with trio.CancelScope() as scope:
        async with block_errors_bare(nursery_around()):
            scope.cancel()
            await trio.lowlevel.checkpoint()
        after.append("the block")
    assert scope.cancelled_caught
    assert not after


@pytest.mark.trio
async def test_a_cancellation_takes_no_error_with_it() -> None:
    with pytest.RaisesGroup(pytest.RaisesExc(OSError, match="beside")), trio.CancelScope() as scope:
        async with block_errors_bare(nursery_around(fails_when_cancelled)):
            await trio.lowlevel.checkpoint()
            scope.cancel()
            await trio.sleep_forever()


@pytest.mark.trio
@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(3)], ids=repr)
async def test_an_interrupt_while_the_context_ends_leaves_it_bare(error: BaseException) -> None:
    @contextlib.asynccontextmanager
    async def interrupted_at_its_end() -> AsyncIterator[None]:
        async with trio.open_nursery():
            yield
            raise error

    with pytest.raises(type(error)) as raised:
        async with block_errors_bare(interrupted_at_its_end()):
            pass
    assert raised.value is error
    assert error.__context__ is None


@pytest.mark.trio
async def test_a_block_that_ends_raises_nothing() -> None:
    async with block_errors_bare(nursery_around()) as value:
        assert value == 7


@pytest.mark.trio
async def test_an_error_is_in_no_cycle_of_references() -> None:
    class Mine(Exception):
        pass

    gc.collect()
    gc.disable()
    try:
        with contextlib.suppress(Mine):
            async with block_errors_bare(contextlib.nullcontext()):
                raise Mine
        assert not [found for found in gc.get_objects() if type(found) is Mine]
    finally:
        gc.enable()


async def nothing(messages: Sequence[MessageExt], context: ConsumeConcurrentlyContext) -> None:
    pass


def openers(directory: Path) -> list[AbstractAsyncContextManager[object]]:
    conf = directory / "broker.conf"
    conf.write_text(f"storePathRootDir={directory}/broker\nlistenPort=0\nhaListenPort=0\n")
    return [
        open_producer(NOBODY, "group"),
        open_admin(NOBODY),
        open_pull_consumer(NOBODY, "group"),
        open_push_consumer(NOBODY, "group", {}, Concurrently(nothing)),
        open_remoting_client(),
        open_cluster(directory / "cluster", slaves=0, name_server=True),
        open_configured_broker(load_broker_config(conf)),
        open_local_name_server(directory / "namesrv"),
        open_message_store(directory / "store", CLUSTER_STORE),
    ]


@pytest.mark.trio
@pytest.mark.parametrize("nth", range(9))
@pytest.mark.parametrize("error", [ValueError("mine"), KeyboardInterrupt()], ids=repr)
async def test_what_the_block_of_an_opener_raises_leaves_it_bare(
    nth: int, error: BaseException, tmp_path: Path
) -> None:
    with pytest.raises(type(error)) as raised:
        async with openers(tmp_path)[nth]:
            raise error
    assert raised.value is error
    assert error.__context__ is None


@pytest.mark.parametrize("nth", range(9))
def test_what_the_block_of_an_opener_raises_in_asyncio_leaves_it_bare(nth: int, tmp_path: Path) -> None:
    error = ValueError("mine")

    async def main() -> None:
        async with open_trio_guest() as guest, guest.enter(openers(tmp_path)[nth]):
            raise error

    with pytest.raises(ValueError, match="mine") as raised:
        asyncio.run(main())
    assert raised.value is error


@pytest.mark.parametrize("nth", range(9))
def test_an_opener_that_asyncio_enters_without_a_guest_says_what_to_use(nth: int, tmp_path: Path) -> None:
    async def main() -> None:
        async with openers(tmp_path)[nth]:
            pass

    told = r"^open_\w+ is for Trio's tasks, and this is none: .* open_asyncio_client .* open_trio_guest\(\)"
    with pytest.raises(RuntimeError, match=told):
        asyncio.run(main())
    assert [path.name for path in tmp_path.iterdir()] == ["broker.conf"]


@pytest.mark.trio
async def test_what_a_call_within_a_client_s_block_raises_is_caught_by_its_type() -> None:
    with pytest.raises(MessageRefused):
        async with open_producer(NOBODY, "group") as producer:
            await producer.send(Message("no topic", b""))


@pytest.mark.trio
async def test_a_client_that_cannot_open_says_why_bare() -> None:
    with pytest.raises(ValueError, match="subString split error"):
        async with open_pull_consumer(NOBODY, "group", {"Orders": "||"}):
            pass


def test_what_a_block_in_asyncio_raises_leaves_it_bare() -> None:
    async def main(error: Exception) -> None:
        async with open_asyncio_client(NOBODY) as client, client.producer("group"):
            raise error

    error = ValueError("mine")
    with pytest.raises(ValueError, match="mine") as raised:
        asyncio.run(main(error))
    assert raised.value is error
    assert error.__context__ is None


def test_what_a_call_in_asyncio_raises_is_caught_by_its_type() -> None:
    async def main() -> None:
        async with open_asyncio_client(NOBODY) as client, client.producer("group") as producer:
            await producer.send(Message("no topic", b""))

    with pytest.raises(MessageRefused):
        asyncio.run(main())
