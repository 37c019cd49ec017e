"""A block that others write, within a nursery that they do not see: what the block raises leaves it as it is."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager
from typing import ParamSpec, TypeVar

import trio

P = ParamSpec("P")
T = TypeVar("T")


def opener(function: Callable[P, AsyncIterator[T]]) -> Callable[P, AbstractAsyncContextManager[T]]:
    """`contextlib.asynccontextmanager` for what others open: it leaves their block's errors bare (`block_errors_bare`).

    Entered outside of a Trio task it raises `RuntimeError`, as `check_in_trio_task` does.
    """
    opened = contextlib.asynccontextmanager(function)

    @contextlib.asynccontextmanager
    async def entered(context: AbstractAsyncContextManager[T]) -> AsyncIterator[T]:
        check_in_trio_task(function.__name__)
        async with block_errors_bare(context) as value:
            yield value

    @functools.wraps(function)
    def called(*args: P.args, **kwargs: P.kwargs) -> AbstractAsyncContextManager[T]:
        return entered(opened(*args, **kwargs))

    return called


def check_in_trio_task(what: str) -> None:
    """Raise `RuntimeError` where `what` is used outside of a Trio task: Trio's own error names neither."""
    if not trio.lowlevel.in_trio_task():
        raise RuntimeError(
            f"{what} is for Trio's tasks, and this is none: in an asyncio program open_asyncio_client gives clients, "
            "and a guest enters all else: async with open_trio_guest() as guest, guest.enter(...)"
        )


@contextlib.asynccontextmanager
async def block_errors_bare(context: AbstractAsyncContextManager[T]) -> AsyncIterator[T]:
    """`context`, whose nursery puts no exception group around what its block alone raises.

    block raised    tasks of the context raised    what leaves
    ValueError      nothing                        that ValueError, as any other `BaseException`
    Cancelled       nothing                        Cancelled, for the scope that it belongs to
    anything        OSError                        the nursery's group, with all that failed
    a group         nothing                        that group, and none around it
    nothing         KeyboardInterrupt, at its end  that KeyboardInterrupt

    So `except ClientError` around the block catches what a call within it raised, and nothing is lost for that.
    """
    raised: BaseException | None = None
    try:
        try:
            async with context as value:
                try:
                    yield value
                except BaseException as error:
                    raised = error
                    raise
        except BaseExceptionGroup as group:
            raised = _bare(raised, group)
            if raised is None:
                raise
        else:
            return
        # After the handler: the group would become the context of what was raised within it.
        error_context = raised.__context__
        try:
            raise raised
        finally:
            raised.__context__ = error_context
            del error_context
    finally:
        del raised  # its traceback has this frame


def _bare(raised: BaseException | None, group: BaseExceptionGroup[BaseException]) -> BaseException | None:
    """What leaves in place of a group; None: the group does."""
    leaves = [*_leaves(group)]
    if raised is None:
        return leaves[0] if len(leaves) == 1 and isinstance(leaves[0], KeyboardInterrupt | SystemExit) else None
    # Leaf by leaf: a nursery copies a group that the block raised.
    return raised if [*map(id, _leaves(raised))] == [*map(id, leaves)] else None


def _leaves(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for nested in error.exceptions:
            yield from _leaves(nested)
    else:
        yield error
