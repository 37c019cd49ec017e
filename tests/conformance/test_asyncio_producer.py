"""Producers in asyncio programs."""

from __future__ import annotations

import asyncio

import pytest

from rmq_actors import (
    ClientTimeout,
    LocalTransactionState,
    Message,
    MessageRefused,
    SendStatus,
    StoredMessage,
    open_asyncio_client,
    open_producer,
    open_trio_guest,
    select_message_queue_by_hash,
)


class Listener:
    """Asyncio's, as it would not be if it waited by Trio."""

    async def execute_local_transaction(
        self, message: Message, transaction_id: str, argument: object
    ) -> LocalTransactionState:
        await asyncio.sleep(0)
        return LocalTransactionState.COMMIT_MESSAGE

    async def check_local_transaction(self, message: StoredMessage, transaction_id: str) -> LocalTransactionState:
        await asyncio.sleep(0)
        return LocalTransactionState.ROLLBACK_MESSAGE


def test_an_asyncio_program_sends_each_kind_of_message(served_name_server: str) -> None:
    async def main() -> None:
        async with (
            open_asyncio_client(served_name_server) as client,
            client.producer("PG") as producer,
            client.producer("TG", transaction_listener=Listener()) as other,
        ):
            results = await asyncio.gather(*[producer.send(Message("Orders", b"%d" % n)) for n in range(20)])
            assert {result.status for result in results} <= {SendStatus.SEND_OK, SendStatus.SLAVE_NOT_AVAILABLE}
            queue = (await producer.queues_of("Orders"))[0]
            assert (await producer.send(Message("Orders", b"queue"), queue=queue)).queue == queue
            await producer.send_by_selector(Message("Orders", b"selected"), select_message_queue_by_hash, "key")
            await producer.send_batch([Message("Orders", b"batch")] * 2)
            await producer.send_oneway(Message("Orders", b"oneway"))
            await other.send_in_transaction(Message("Orders", b"transaction"))
            with pytest.raises(MessageRefused):
                await producer.send(Message("Orders", b""))
            with pytest.raises(ClientTimeout):
                await producer.send(Message("Orders", b"late"), timeout_ms=0)

    asyncio.run(main())


def test_a_time_out_of_asyncio_cancels_a_send_and_the_producer_goes_on(served_name_server: str) -> None:
    async def main() -> None:
        async with open_asyncio_client(served_name_server) as client, client.producer("PG") as producer:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0):
                    await producer.send(Message("Orders", b"x"))
            assert (await producer.send(Message("Orders", b"y"))).queue_offset >= 0

    asyncio.run(main())


def test_a_trio_client_in_an_asyncio_task_says_what_to_use_instead(served_name_server: str) -> None:
    async def main() -> None:
        async with open_trio_guest() as guest, guest.enter(open_producer(served_name_server, "PG")) as producer:
            with pytest.raises(RuntimeError, match="open_asyncio_client"):
                await producer.send(Message("Orders", b"x"))

    asyncio.run(main())
