"""Which processor serves which request, at once or by workers from a bounded queue (NettyRequestProcessor)."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import NamedTuple

import attrs
import trio

from rmq_actors.actors.services.service import ServiceThread
from rmq_actors.protocols.request_queue import RequestQueue
from rmq_actors.remoting.connection import RemotingConnection, RemotingRequest
from rmq_actors.remoting.hooks import RpcRefused
from rmq_actors.remoting.row_group import ProcessRows, RowGroup
from rmq_actors.tracing.events.remoting import RemotingBusy, RemotingFailed
from rmq_actors.tracing.recorder import Tracer
from rmq_actors.wire.remoting_command import RemotingCommand, RemotingCommandError
from rmq_actors.wire.response_code import ResponseCode

_log = logging.getLogger(__name__)


#: Runs at once, in the task that reads the connection. If it returns None, it calls `respond` later.
ProcessRequest = Callable[[RemotingRequest], RemotingCommand | None]
#: Runs in a worker of a `RequestPool`.
ProcessRequestAsync = Callable[[RemotingRequest], Awaitable[RemotingCommand | None]]


class _Queued(NamedTuple):
    request: RemotingRequest
    process: ProcessRequestAsync
    size_bytes: int


def _size_bytes(command: RemotingCommand) -> int:
    fields = command.ext_fields or {}
    return len(command.body) + sum(map(len, fields)) + sum(map(len, fields.values()))


@attrs.define(eq=False, repr=False)
class RequestPool(ServiceThread):
    """The executor of some processors: `workers` tasks and a queue of `queue_capacity` requests; a Service.

    If the queue is full, or a request has waited `wait_time_max_ms`, the answer is SYSTEM_BUSY, as from RocketMQ's
    thread pools and BrokerFastFailure. A queue is also full once `queue_max_bytes` of bodies and fields wait in it.
    """

    name: str
    workers: int = attrs.field(validator=attrs.validators.ge(1))
    queue_capacity: int
    wait_time_max_ms: int | None
    _tracer: Tracer
    queue_max_bytes: int = attrs.field(default=256 * 1024 * 1024, validator=attrs.validators.ge(1), kw_only=True)
    _queue: RequestQueue[_Queued] = attrs.field(init=False)
    _queued_bytes: int = attrs.field(default=0, init=False)
    _idle_workers: trio.lowlevel.ParkingLot = attrs.field(factory=trio.lowlevel.ParkingLot, init=False)
    _waiting: trio.Event = attrs.field(factory=trio.Event, init=False)

    def __attrs_post_init__(self) -> None:
        self._queue = RequestQueue(self.queue_capacity, self.wait_time_max_ms)

    @property
    def queue_length(self) -> int:
        """How many requests wait."""
        return len(self._queue)

    async def work(self, task_status: trio.TaskStatus[None]) -> None:
        """Serve queued requests. Those that wait at a stop are not answered: their connections end with the server."""
        async with trio.open_nursery() as nursery:
            for _ in range(self.workers):
                nursery.start_soon(self._work)
            if self.wait_time_max_ms is not None:
                nursery.start_soon(self._fail_fast)
            task_status.started()

    def submit(self, request: RemotingRequest, process: ProcessRequestAsync) -> None:
        """Queue a request, or answer that too many wait."""
        size_bytes = _size_bytes(request.command)
        is_full = self._queued_bytes + size_bytes > self.queue_max_bytes
        if is_full or not self._queue.offer(_Queued(request, process, size_bytes), request.arrived_s):
            self._refuse(request, "[OVERLOAD]system busy, start flow control for a while")
            return
        self._queued_bytes += size_bytes
        self._idle_workers.unpark()
        if not self._waiting.is_set():
            self._waiting.set()

    @property
    def queued(self) -> int:
        """How many requests wait for a worker."""
        return len(self._queue)

    def head_wait_ms(self) -> int:
        """How long the first of them has waited; 0 if there is none."""
        return int(self._queue.head_wait_s(trio.current_time()) * 1000)

    async def _work(self) -> None:
        while True:
            self._expire()
            taken = self._queue.take()
            if taken is None:
                await self._idle_workers.park()
                continue
            request = taken.request
            self._queued_bytes -= taken.size_bytes
            try:
                response = await taken.process(request)
                if response is not None:
                    request.respond(response)
            except Exception as error:  # noqa: BLE001 - answered, logged, traced
                answer_failure(request, error, self._tracer)

    async def _fail_fast(self) -> None:
        while True:
            await self._waiting.wait()
            self._waiting = trio.Event()
            while len(self._queue):
                await trio.sleep_until(self._queue.next_expiry_s())
                self._expire()

    def _expire(self) -> None:
        for queued, waited_ms, queue_size in self._queue.expire(trio.current_time()):
            self._queued_bytes -= queued.size_bytes
            self._refuse(
                queued.request,
                "[TIMEOUT_CLEAN_QUEUE]broker busy, start flow control for a while, "
                f"period in queue: {waited_ms}ms, size of queue: {queue_size}",
            )

    def _refuse(self, request: RemotingRequest, remark: str) -> None:
        self._tracer.emit(
            RemotingBusy(
                conn_id=request.connection.conn_id,
                status=remark[1 : remark.index("]")].lower(),
                code=request.command.code,
            ),
            self.name,
        )
        request.refuse(ResponseCode.SYSTEM_BUSY, remark)


@attrs.frozen
class _Registered:
    process: ProcessRequest | None
    process_async: ProcessRequestAsync | None
    pool: RequestPool | None
    reject_request: Callable[[], bool] | None


@attrs.define(eq=False, repr=False)
class ProcessorTable:
    """Processors by request code, for any number of servers. A code without one goes to the default, or gets 3."""

    _tracer: Tracer
    _by_code: dict[int, _Registered] = attrs.field(factory=dict, init=False)
    _default: _Registered | None = attrs.field(default=None, init=False)
    #: Where plain messages are served, many at a time; None: as requests, one by one.
    row_group: RowGroup[RemotingConnection] | None = attrs.field(default=None, init=False)

    def register(
        self, codes: Iterable[int], process: ProcessRequest, *, reject_request: Callable[[], bool] | None = None
    ) -> None:
        """Process these codes at once. While `reject_request` returns true, the answer is SYSTEM_BUSY instead."""
        for code in codes:
            self._add(code, _Registered(process, None, None, reject_request))

    def register_pooled(
        self,
        codes: Iterable[int],
        process: ProcessRequestAsync,
        pool: RequestPool,
        *,
        reject_request: Callable[[], bool] | None = None,
    ) -> None:
        """Process these codes by the workers of a pool."""
        for code in codes:
            self._add(code, _Registered(None, process, pool, reject_request))

    def register_default(self, process: ProcessRequest) -> None:
        """Process every other code at once."""
        self._default = _Registered(process, None, None, None)

    def register_rows(self, process: ProcessRows[RemotingConnection]) -> None:
        """Process plain messages as rows, those of all connections together."""
        self.row_group = RowGroup(process)

    def process(self, request: RemotingRequest) -> None:
        """Have a request processed. Raises nothing: every failure is answered."""
        command = request.command
        registered = self._by_code.get(command.code, self._default)
        if registered is None:
            _log.warning("%s: request type %d is not supported", request.connection.remote_address, command.code)
            request.refuse(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, f" request type {command.code} not supported")
            return
        try:
            if registered.reject_request is not None and registered.reject_request():
                request.refuse(ResponseCode.SYSTEM_BUSY, "[REJECTREQUEST]system busy, start flow control for a while")
                return
            for hook in request.connection.hooks:
                hook.before_request(request.connection.remote_address, command)
            if registered.pool is not None and registered.process_async is not None:
                registered.pool.submit(request, registered.process_async)
            elif registered.process is not None:
                response = registered.process(request)
                if response is not None:
                    request.respond(response)
        except Exception as error:  # noqa: BLE001 - answered, logged, traced
            answer_failure(request, error, self._tracer)

    def _add(self, code: int, registered: _Registered) -> None:
        if code in self._by_code:
            raise ValueError(f"request code {code} has a processor already")
        self._by_code[code] = registered


def answer_failure(request: RemotingRequest, error: Exception, tracer: Tracer) -> None:
    """Answer a request whose processor, or a hook before it, raised: the connection goes on."""
    if isinstance(error, RpcRefused):
        request.refuse(error.code, _sendable(error.remark))
        return
    peers_mistake = isinstance(error, RemotingCommandError)
    text = _sendable(str(error))
    where = f"{request.connection.remote_address}: request {request.command.code}"
    if peers_mistake:
        _log.warning("%s: %s", where, text)
    else:
        _log.error("%s: the processor failed", where, exc_info=error)
    tracer.emit(
        RemotingFailed(
            conn_id=request.connection.conn_id,
            status="bad_request" if peers_mistake else type(error).__name__,
            code=request.command.code,
            detail=text[:200],
        )
    )
    if not request.is_answered:
        request.refuse(ResponseCode.SYSTEM_ERROR, f"{type(error).__name__}, {text}")


def _sendable(text: str) -> str:
    """An error's text, made sendable: it may repeat what the peer sent, such as long text or half a surrogate pair."""
    return text[:1000].encode(errors="replace").decode()
