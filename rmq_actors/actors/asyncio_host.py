"""Trio inside of an asyncio program: the event loop is the host of a Trio guest run, in the same thread.

asyncio calls Trio by `TrioGuest.run` and `TrioGuest.enter`; Trio calls asyncio by `run_in_asyncio`. Each call is as if
it were awaited on its own side: it returns or raises what the function does, and it is never left behind. A
cancellation of the caller is passed on to the callee, whose clean-up runs to its end before the caller goes on. When
the guest fails as a whole, the asyncio block that opened it is cancelled and raises why.

Both loops share one thread, so asyncio code may call the synchronous functions of Trio objects (`Event.set`,
`MemorySendChannel.send_nowait`, `CancelScope.cancel`) directly, and Trio code those of asyncio's. Trio's waits for I/O
use a worker thread of Trio's cache. See docs/embedding.md, and guest mode in Trio's reference.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Generic, NoReturn, TypeVar, TypeVarTuple

import attrs
import outcome
import trio

T = TypeVar("T")
Args = TypeVarTuple("Args")


class TrioEnded(RuntimeError):
    """What ran in Trio ended before its asyncio caller was done with it, and said nothing of why."""


class AsyncioCancelled(RuntimeError):
    """An asyncio task that worked for Trio was cancelled, and not by Trio."""


def _name_of(function: Callable[..., object]) -> str:
    """How errors name a function. What a partial has for it is not shown: that may be a message of many MiB."""
    while isinstance(function, functools.partial):
        function = function.func
    return getattr(function, "__qualname__", None) or type(function).__qualname__


async def _outlast(ended: asyncio.Future[None]) -> None:
    """Wait for `ended`, however often the waiting task is cancelled meanwhile."""
    while not ended.done():
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.shield(ended)


@attrs.define(eq=False, repr=False)
class _Call(Generic[T]):
    """A Trio task that works for an asyncio task. It has no outcome when it was cancelled."""

    name: str
    ended: asyncio.Future[None]
    _outcome: outcome.Outcome[T] | None = attrs.field(default=None, init=False)
    _scope: trio.CancelScope = attrs.field(factory=trio.CancelScope, init=False)

    async def run_in_trio(self, async_fn: Callable[[*Args], Awaitable[T]], args: tuple[*Args]) -> None:
        try:
            with self._scope:
                self._outcome = outcome.Value(await async_fn(*args))
        except BaseException as error:
            if _is_cancelled(error):
                raise  # the guest ends: only a scope outside of this call can catch it
            self._outcome = outcome.Error(error)
        finally:
            self.settle()

    def settle(self) -> None:
        if not self.ended.done():
            self.ended.set_result(None)

    async def wait_for(self, event: asyncio.Future[None]) -> None:
        """Wait for `event`. When cancelled: cancel the Trio task, wait for its end, and raise what it raised, if so."""
        try:
            await asyncio.shield(event)
        except asyncio.CancelledError:
            await self.cancel()
            raise

    async def cancel(self) -> None:
        """Cancel the Trio task and wait for its end. Raises what it raised in cleaning up."""
        if not self.ended.done():  # after a crash of the guest, its scopes cannot be cancelled any more
            self._scope.cancel()
        await _outlast(self.ended)
        self.raise_error()

    def raise_error(self) -> None:
        if isinstance(self._outcome, outcome.Error):
            self.result()

    def result(self) -> T:
        """What the function returned or raised. TrioEnded if it was cancelled, for only the guest's end does that."""
        taken, self._outcome = self._outcome, None
        if taken is None:
            raise TrioEnded(f"the Trio guest ended while {self.name} ran in it")
        try:
            return taken.unwrap()
        finally:
            del taken  # an error's traceback holds this frame: no reference cycle


def _is_cancelled(error: BaseException) -> bool:
    if isinstance(error, BaseExceptionGroup):
        return error.subgroup(trio.Cancelled) is not None
    return isinstance(error, trio.Cancelled)


@attrs.define(eq=False, repr=False)
class _Held(Generic[T]):
    """A Trio context manager that a Trio task has entered, until an asyncio block is over."""

    context: AbstractAsyncContextManager[T]
    entered: asyncio.Future[None]
    values: list[T] = attrs.field(factory=list, init=False)
    _over: trio.Event = attrs.field(factory=trio.Event, init=False)
    _error: BaseException | None = attrs.field(default=None, init=False)

    async def hold(self) -> None:
        async with self.context as value:
            self.values.append(value)
            self.settle()
            await self._over.wait()
            if self._error is not None:
                raise self._error

    def settle(self, _: asyncio.Future[None] | None = None) -> None:
        if not self.entered.done():
            self.entered.set_result(None)

    def release(self, error: BaseException | None) -> None:
        """Leave the context, as if `error` had been raised in it."""
        self._error = error
        self._over.set()


@attrs.define(eq=False, repr=False)
class _Interrupt:
    """Cancels the asyncio task of a block when `ended` comes before the block's end, and takes that back there."""

    _ended: asyncio.Future[None]
    _task: asyncio.Task[object]
    _sent: bool = attrs.field(default=False, init=False)

    def __attrs_post_init__(self) -> None:
        self._ended.add_done_callback(self._send)

    def _send(self, _: asyncio.Future[None]) -> None:
        self._sent = True
        self._task.cancel()

    def disarm(self) -> bool:
        """To be called at the block's end: whether `ended` had come first."""
        self._ended.remove_done_callback(self._send)
        if self._sent:
            self._task.uncancel()
        return self._ended.done()


@attrs.define(eq=False, repr=False)
class TrioGuest:
    """A Trio run inside of this thread's asyncio loop; made by `open_trio_guest`. Its methods are for asyncio tasks."""

    loop: asyncio.AbstractEventLoop
    _opener: asyncio.Task[object]
    opened: asyncio.Future[None]
    ended: asyncio.Future[None]
    _closing: trio.Event = attrs.field(factory=trio.Event, init=False)
    _nursery: trio.Nursery | None = attrs.field(default=None, init=False)
    _calls: dict[asyncio.Future[None], Callable[[], None]] = attrs.field(factory=dict, init=False)
    _error: BaseException | None = attrs.field(default=None, init=False)

    async def run(self, async_fn: Callable[[*Args], Awaitable[T]], *args: *Args) -> T:
        """Run `async_fn(*args)` in Trio and return its result; it sees the caller's context variables.

        Raises what it raises. A cancellation cancels it and is raised once it has ended, unless its clean-up raised
        something else. TrioEnded if the guest has ended or ends meanwhile; RuntimeError outside of an asyncio task of
        the guest's loop.
        """
        call = self._begin(_name_of(async_fn), async_fn, *args)
        await call.wait_for(call.ended)
        return call.result()

    @contextlib.asynccontextmanager
    async def enter(self, context: AbstractAsyncContextManager[T]) -> AsyncIterator[T]:
        """Hold a Trio context manager open, in a Trio task, for the length of an asyncio block.

        An error of the block is raised in the context, and a cancellation of the block cancels it. If the context fails
        on its own, the block is cancelled and raises why; TrioEnded if it just ends. Else as `run`.
        """
        held = _Held(context, self.loop.create_future())
        call = self._begin(repr(context), held.hold)
        call.ended.add_done_callback(held.settle)
        await call.wait_for(held.entered)
        if not held.values:
            call.result()  # raises why it was not entered
        interrupt = _Interrupt(call.ended, self._current_task())
        try:
            yield held.values[0]
        except BaseException as error:
            await self._leave(call, held, interrupt, error)
            if isinstance(error, asyncio.CancelledError):
                raise
        else:
            await self._leave(call, held, interrupt, None)

    async def _leave(
        self, call: _Call[None], held: _Held[T], interrupt: _Interrupt, error: BaseException | None
    ) -> None:
        """Leave the context with what the block raised. Raises what the context makes of it."""
        if interrupt.disarm():
            if self.ended.done() and isinstance(error, asyncio.CancelledError) and self._current_task() is self._opener:
                return  # that may have been the guest's cancellation of its block, which knows the reason
            call.result()
            raise TrioEnded(f"{held.context!r} ended before its block did")
        if isinstance(error, asyncio.CancelledError):
            await call.cancel()
            return
        held.release(error)
        await call.wait_for(call.ended)
        call.result()

    def _current_task(self) -> asyncio.Task[object]:
        """RuntimeError if no asyncio task of the guest's loop runs here."""
        try:
            task = asyncio.current_task()
        except RuntimeError:
            raise RuntimeError("a TrioGuest may be used in the thread of its asyncio loop only") from None
        if task is None:
            raise RuntimeError("a TrioGuest is for asyncio tasks: in Trio, await the function itself")
        if task.get_loop() is not self.loop:
            raise RuntimeError("this TrioGuest belongs to another asyncio loop")
        return task

    def _begin(self, name: str, async_fn: Callable[[*Args], Awaitable[T]], *args: *Args) -> _Call[T]:
        self._current_task()
        if self._nursery is None or self.ended.done() or self._closing.is_set():
            raise TrioEnded(f"the Trio guest has ended: {name} cannot run in it")
        call = _Call[T](name, self.loop.create_future())
        self._calls[call.ended] = call.settle
        call.ended.add_done_callback(self._calls.pop)
        self._nursery.start_soon(call.run_in_trio, async_fn, args, name=async_fn)
        return call

    def start(self) -> None:
        """Start the Trio run. It goes on until `close`, or until it fails."""
        trio.lowlevel.start_guest_run(
            self._main,
            run_sync_soon_threadsafe=self.loop.call_soon_threadsafe,
            run_sync_soon_not_threadsafe=self.loop.call_soon,
            done_callback=self._done,
            host_uses_signal_set_wakeup_fd=True,
            # With asyncio.run, Ctrl-C cancels asyncio's main task. Where the handler is Trio's, it ends the guest and
            # so the block: raised in the middle of a call, it would stop the loop under the guest.
            restrict_keyboard_interrupt_to_checkpoints=True,
        )

    async def _main(self) -> None:
        _current_guest.set(self)
        try:
            async with trio.open_nursery() as self._nursery:
                self.opened.set_result(None)
                await self._closing.wait()
                self._nursery.cancel_scope.cancel()
        except BaseExceptionGroup as group:
            if group.subgroup(KeyboardInterrupt) is not None:
                raise KeyboardInterrupt from group
            raise
        finally:
            self._nursery = None

    def _done(self, result: outcome.Outcome[None]) -> None:
        if isinstance(result, outcome.Error):
            self._error = result.error
        for settle in list(self._calls.values()):
            settle()  # after a TrioInternalError, not every task has come to its end
        for future in (self.opened, self.ended):
            if not future.done():
                future.set_result(None)

    async def close(self) -> None:
        """End the Trio run: cancel what still runs in it, wait for its end, and raise what it failed of."""
        if not self.ended.done():
            self._closing.set()
        try:
            await asyncio.shield(self.ended)
        except asyncio.CancelledError:
            await _outlast(self.ended)
            self._raise_error()
            raise
        self._raise_error()

    def _raise_error(self) -> None:
        error, self._error = self._error, None
        try:
            if error is not None:
                raise error
        finally:
            del error


_current_guest: trio.lowlevel.RunVar[TrioGuest | None] = trio.lowlevel.RunVar("the guest that this run is", None)


@contextlib.asynccontextmanager
async def open_trio_guest() -> AsyncIterator[TrioGuest]:
    """Run Trio inside of this asyncio loop for the length of a block, one guest at a time.

    At the block's end, what other asyncio tasks still run in Trio is cancelled and fails with TrioEnded. If the guest
    fails (TrioInternalError, or KeyboardInterrupt where asyncio does not handle Ctrl-C), the block is cancelled and
    raises that. RuntimeError outside of asyncio, and if the loop has a guest or is one itself.
    """
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        raise RuntimeError("a Trio guest needs a running asyncio loop: a Trio program needs no guest") from None
    if trio.lowlevel.in_trio_run():
        raise RuntimeError("this thread runs Trio already: an asyncio loop may have one Trio guest at a time")
    task = asyncio.current_task()
    if task is None:
        raise RuntimeError("a Trio guest is opened in an asyncio task")
    guest = TrioGuest(loop, task, loop.create_future(), loop.create_future())
    guest.start()
    try:
        await asyncio.shield(guest.opened)
    except asyncio.CancelledError:
        await guest.close()
        raise
    interrupt = _Interrupt(guest.ended, task)
    try:
        yield guest
    finally:
        interrupt.disarm()
        await guest.close()


async def run_in_asyncio(async_fn: Callable[[*Args], Awaitable[T]], *args: *Args) -> T:
    """Run `async_fn(*args)` in an asyncio task of the host's loop and return its result; for Trio tasks of a guest.

    Raises what it raises. When the caller is cancelled, so is the asyncio task, once, and its clean-up is waited for; a
    result that it returns all the same is returned. AsyncioCancelled if asyncio cancels it. RuntimeError outside of a
    guest. A checkpoint.
    """
    if not trio.lowlevel.in_trio_task():
        raise RuntimeError("run_in_asyncio is for Trio tasks: in asyncio, await the function itself")
    guest = _current_guest.get()
    if guest is None:
        raise RuntimeError("run_in_asyncio needs a Trio run that is a guest of asyncio: see open_trio_guest")

    async def work() -> T:
        return await async_fn(*args)

    task = guest.loop.create_task(work())
    raise_cancel = await _finish(task)
    if task.cancelled():
        if raise_cancel is not None:
            raise_cancel()
        raise AsyncioCancelled(f"asyncio cancelled {async_fn!r}, which worked for Trio")
    try:
        return task.result()
    finally:
        del task  # an error's traceback holds this frame: no reference cycle


async def _finish(task: asyncio.Task[object]) -> Callable[[], NoReturn] | None:
    """Wait in Trio for an asyncio task, and cancel it when the waiter is: then returns what raises Cancelled."""
    waiting = trio.lowlevel.current_task()
    cancelled: list[Callable[[], NoReturn]] = []

    def abort(raise_cancel: Callable[[], NoReturn]) -> trio.lowlevel.Abort:
        cancelled.append(raise_cancel)
        task.cancel()
        return trio.lowlevel.Abort.FAILED

    task.add_done_callback(lambda _: trio.lowlevel.reschedule(waiting))
    await trio.lowlevel.wait_task_rescheduled(abort)
    return cancelled[0] if cancelled else None
