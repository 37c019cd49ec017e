"""Producers of a run that send half of their messages in transactions, and answer when they are asked how these ended.

How a transaction ends is drawn when its message has been prepared, and told in the trace before anybody else hears of
it. Some are ended at once, some only when a broker asks, some only when it asks again. A message whose preparation was
not confirmed is rolled back, and another one is sent in its place.
"""

from __future__ import annotations

import contextlib

import attrs
import trio

from rmq_actors.remoting.client import RemotingClient
from rmq_actors.remoting.connection import RemotingError, RemotingRequest
from rmq_actors.remoting.processor import ProcessorTable
from rmq_actors.testing.clients import CHAOS_TOPIC, LOOK_EVERY_S, PUT_AGAIN_S, WRITERS
from rmq_actors.testing.remote_clients import RemoteClients
from rmq_actors.testing.thin_client import PRODUCER_GROUP, Prepared, end_request
from rmq_actors.tracing.events.run import ClientTransaction
from rmq_actors.wire.headers import decode_header
from rmq_actors.wire.headers.transactions import CheckTransactionStateRequestHeader
from rmq_actors.wire.record import TRANSACTION_COMMIT_TYPE, TRANSACTION_ROLLBACK_TYPE, decode_message
from rmq_actors.wire.request_code import RequestCode
from rmq_actors.wire.response_code import ResponseCode
from sim_net import Node

#: How often a transaction is committed, and how often the broker must ask first.
_COMMITS, _ASKED = 0.6, 0.4
#: How often a producer that is asked does not know it yet.
_UNKNOWN = 0.3
_UNKNOWN_TYPE = 0
_BEAT_S = 1.0


@attrs.define(eq=False, repr=False)
class TransactionalClients(RemoteClients):
    """See the module. A producer stays connected while a master knows of a transaction without an end."""

    #: By key: how its transaction ends; None while that is not decided.
    _decided: dict[str, int | None] = attrs.field(factory=dict, init=False)

    @property
    def are_done(self) -> bool:
        """Whether no master has an open transaction."""
        return not any(self._is_open_at(name) for name in self.brokers.running)

    def _is_open_at(self, name: str) -> bool:
        broker = self.brokers.broker(name)
        return self.is_put_to(broker, name) and broker.store.transactions.open_count > 0

    async def _produce_all(self, node: Node) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(super()._produce_all, node)
            nursery.start_soon(self._transact_all, node)

    async def _transact_all(self, node: Node) -> None:
        async with self._open("transactions", node) as remoting:
            beat_at_s = 0.0
            while not self._stopping.is_set():
                master = self._master()
                if master is None or not self.may_write or (self.puts_left <= 0 and not self._is_open_at(master)):
                    for connection in list(remoting.connections.values()):
                        connection.stop()
                    await trio.sleep(LOOK_EVERY_S)
                    beat_at_s = 0.0
                    continue
                if trio.current_time() >= beat_at_s:
                    with contextlib.suppress(RemotingError):
                        await self._client(remoting, master).heartbeat(producers=[PRODUCER_GROUP])
                    beat_at_s = trio.current_time() + _BEAT_S
                if self.puts_left > 0:
                    await self._transact(remoting, master, node)
                await trio.sleep(PUT_AGAIN_S)

    async def _transact(self, remoting: RemotingClient, master: str, node: Node) -> None:
        self.puts_left -= 1
        entropy = node.entropy
        key, queue_id = f"tx-{len(self._decided)}", int(entropy.random() * WRITERS)
        body = self._body(node)
        self._decided[key] = None
        client = self._client(remoting, master)
        self._waiting += 1
        try:
            code, prepared = await client.prepare(
                CHAOS_TOPIC,
                body,
                queue_id,
                {"KEYS": key, "UNIQ_KEY": key},
                born_timestamp=node.wall_clock.now_ms(),
            )
        except RemotingError:
            code, prepared = -1, None
        self._waiting -= 1
        is_prepared = code == ResponseCode.SUCCESS and isinstance(prepared, Prepared)
        state = TRANSACTION_COMMIT_TYPE if is_prepared and entropy.random() < _COMMITS else TRANSACTION_ROLLBACK_TYPE
        if not is_prepared:
            self.puts_left += 1
        if state == TRANSACTION_COMMIT_TYPE:
            self._sent[key] = self._message(key, queue_id, body)
        self._decided[key] = state
        self._note("commit" if state == TRANSACTION_COMMIT_TYPE else "roll_back", key, master)
        if isinstance(prepared, Prepared) and entropy.random() >= _ASKED:
            with contextlib.suppress(RemotingError):
                answer = await client.end(prepared, state)
                if answer.code == ResponseCode.SUCCESS:
                    self._note("committed" if state == TRANSACTION_COMMIT_TYPE else "rolled_back", key, master)

    def _note(self, status: str, key: str, master: str) -> None:
        self.brokers.recorder.record(ClientTransaction(status=status, key=key), master)

    def _answers(self, processors: ProcessorTable) -> None:
        processors.register([RequestCode.CHECK_TRANSACTION_STATE], self._answer)

    def _answer(self, request: RemotingRequest) -> None:
        header = decode_header(CheckTransactionStateRequestHeader, request.command)
        key = decode_message(memoryview(request.command.body)).properties["KEYS"]
        state = self._decided[key]
        if state is None or self._producers.entropy.random() < _UNKNOWN:
            state = _UNKNOWN_TYPE
        asked = Prepared(header.tran_state_table_offset, header.commit_log_offset, key)
        with contextlib.suppress(RemotingError):
            request.connection.invoke_oneway(end_request(asked, state, from_check=True))
