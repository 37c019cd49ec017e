"""The guard: while a world runs, named packages may not touch the real one.

Real files, sockets, threads, processes, clocks and randomness are refused by direct caller: a call counts as the
program's when the frame that makes it belongs to one of the packages, seen through thin wrappers of the standard
library (`pathlib`, `threading`, ...). So the import system, `linecache`, `logging` and test tools go on as ever; log
records get virtual times.

What is refused raises `Tripwire`, a BaseException so that no `except Exception` hides it, and fails the world with
`ForbiddenCall` even where something does. Worker threads and waiting on real descriptors are refused to everybody,
because the kernel would let time jump past them.

The audit hook cannot be removed again: it is installed once, and idle while no world runs. The wrappers around
functions that are not audited are put in place for each run and taken away after it.
"""

from __future__ import annotations

import _thread
import functools
import os
import random
import secrets
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType, ModuleType
from typing import Any, Final, NoReturn

from sim_net.kernel import SimulationError


class Tripwire(BaseException):
    """Raised into a program that reached for the real world."""


class ForbiddenCall(SimulationError):
    """The program reached for the real world; raised by `World.run`. The message names the call and the caller."""


_AUDITED: Final = {
    "open": "opening a real file",
    "os.listdir": "listing a real directory",
    "os.scandir": "listing a real directory",
    "os.mkdir": "making a real directory",
    "os.remove": "removing a real file",
    "os.rename": "renaming a real file",
    "os.rmdir": "removing a real directory",
    "os.truncate": "truncating a real file",
    "socket.__new__": "making a real socket",
    "socket.getaddrinfo": "looking up a real name",
    "socket.gethostbyname": "looking up a real name",
    "subprocess.Popen": "starting a process",
    "os.exec": "starting a process",
    "os.fork": "starting a process",
    "os.forkpty": "starting a process",
    "os.posix_spawn": "starting a process",
    "os.spawn": "starting a process",
    "os.system": "starting a process",
}
# Whoever calls through these has made the call itself.
_THIN: Final = frozenset(
    {
        "asyncio", "codecs", "concurrent", "fileinput", "glob", "io", "multiprocessing", "os", "pathlib", "selectors",
        "shutil", "socket", "subprocess", "tempfile", "threading",
    }
)  # fmt: skip
_WRAPPED: Final[tuple[tuple[ModuleType, tuple[str, ...]], ...]] = (
    (
        time,
        ("time", "time_ns", "monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns", "process_time", "sleep"),
    ),
    (os, ("urandom", "getrandom")),
    (
        random,
        (
            "random", "uniform", "randint", "randrange", "getrandbits", "randbytes", "choice", "choices", "sample",
            "shuffle", "seed", "gauss", "normalvariate", "expovariate", "triangular", "betavariate",
        ),
    ),
    (uuid, ("uuid1", "uuid4")),
    (secrets, ("token_bytes", "token_hex", "token_urlsafe", "choice", "randbelow", "randbits")),
    (_thread, ("start_new_thread",)),
    (threading, ("_start_new_thread",)),
)  # fmt: skip

_active: Guard | None = None
_hook_installed = False


class Guard:
    """What one world forbids, and to whom."""

    def __init__(
        self, packages: tuple[str, ...], fail: Callable[[BaseException], None], wall_time_s: Callable[[], float]
    ) -> None:
        self._packages = packages
        self._fail = fail
        self._forbidden: dict[str, bool] = {}
        #: Seconds since the epoch, for log records.
        self.wall_time_s = wall_time_s

    def forbids(self, module: str) -> bool:
        """Whether the module of this name belongs to one of the packages."""
        forbidden = self._forbidden.get(module)
        if forbidden is None:
            forbidden = any(module == package or module.startswith(f"{package}.") for package in self._packages)
            self._forbidden[module] = forbidden
        return forbidden

    def refuse(self, what: str) -> NoReturn:
        """Fail the world and raise `Tripwire`."""
        self._fail(ForbiddenCall(f"a simulated program may not touch the real world: {what}"))
        raise Tripwire(what)

    def check(self, what: str, frame: FrameType | None) -> None:
        """Refuse, if the call of `frame` is the program's own."""
        while frame is not None and _module(frame).partition(".")[0] in _THIN:
            frame = frame.f_back
        if frame is not None and self.forbids(_module(frame)):
            self.refuse(f"{what}, in {_module(frame)}.{frame.f_code.co_qualname}, line {frame.f_lineno}")

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Be the guard of this process. RuntimeError when a world runs already."""
        global _active, _hook_installed  # noqa: PLW0603 - of the process, not of a world
        if _active is not None:
            raise RuntimeError("another world is running in this process")
        if not _hook_installed:
            sys.addaudithook(_audit)
            _hook_installed = True
        wrappers = _wrappers()
        before = [getattr(module, name) for module, name, _ in wrappers]
        _active = self
        try:
            for module, name, wrapper in wrappers:
                setattr(module, name, wrapper)
            yield
        finally:
            for (module, name, wrapper), real in zip(wrappers, before, strict=True):
                if getattr(module, name) is wrapper:
                    setattr(module, name, real)
            _active = None


def _module(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", ""))


def _audit(event: str, args: tuple[Any, ...]) -> None:
    if _active is not None and event in _AUDITED:
        what = _AUDITED[event]
        _active.check(f"{what} ({args[0]!r})" if event == "open" else what, sys._getframe(1))


@functools.cache
def _wrappers() -> tuple[tuple[ModuleType, str, Callable[..., object]], ...]:
    """(module, name, the function's wrapper) for each function that Python does not audit."""
    return tuple(
        (module, name, _wrapped(f"{module.__name__}.{name}", getattr(module, name)))
        for module, names in _WRAPPED
        for name in names
        if hasattr(module, name)
    )


def _wrapped(what: str, real: Callable[..., object]) -> Callable[..., object]:
    is_time = real is time.time
    is_thread = real is _thread.start_new_thread
    if is_thread:
        what = "starting a thread"

    @functools.wraps(real)
    def wrapper(*args: object, **kwargs: object) -> object:
        guard = _active
        if guard is not None:
            frame = sys._getframe(1)
            module = _module(frame)
            if is_thread or guard.forbids(module):
                guard.check(what if is_thread else f"{what}()", frame)
            if is_time and module == "logging":
                return guard.wall_time_s()
        return real(*args, **kwargs)

    return wrapper
