"""The guard: while a world runs, named packages may not touch the real one.

Real files, sockets, threads, processes, clocks and randomness are refused by direct caller: a call counts as the
program's when the frame that makes it belongs to one of the packages, seen through thin wrappers of the standard
library (`pathlib`, `threading`, ...). So the import system, `linecache`, `logging` and test tools go on as ever; log
records get virtual times.

What is refused raises `Tripwire`, a BaseException so that no `except Exception` hides it, and fails the world with
`ForbiddenCall` even where something does. Worker threads and waiting on real descriptors are refused to everybody,
because the kernel would let time jump past them.

The audit hook cannot be removed again: it is installed once, and idle while no world runs. What Python does not audit
is in `sim_net.kernel.unaudited`. Other threads, begun before the run, do as they like.
"""

from __future__ import annotations

import sys
import threading
import zoneinfo
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Final, NoReturn

from sim_net.kernel.kernel import SimulationError
from sim_net.kernel.remedies import remedy
from sim_net.kernel.unaudited import module_name, watched_by


class Tripwire(BaseException):
    """Raised into a program that reached for the real world."""


class ForbiddenCall(SimulationError):
    """The program reached for the real world; raised by `World.run`.

    The message names the call, function, file and line of the caller, and what to do instead.
    """


_AUDITED: Final = {
    "open": "opening a real file",
    "builtins.input": "asking the terminal",
    "sqlite3.connect": "opening a real database",
    "os.link": "linking a real file",
    "os.symlink": "linking a real file",
    "os.utime": "touching a real file",
    "os.chmod": "touching a real file",
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
# A caller through these has made the call itself.
_THIN: Final = frozenset(
    {
        "asyncio", "bz2", "codecs", "concurrent", "dbm", "fileinput", "ftplib", "genericpath", "glob", "gzip", "http",
        "imaplib", "io", "lzma", "multiprocessing", "os", "pathlib", "poplib", "posixpath", "random", "secrets",
        "selectors", "shelve", "shutil", "smtplib", "socket", "socketserver", "sqlite3", "ssl", "subprocess", "tarfile",
        "tempfile", "threading", "urllib", "uuid", "xmlrpc", "zipfile",
    }
)  # fmt: skip
# These ask for a worker thread or a descriptor on behalf of the program.
_BETWEEN: Final = frozenset({"trio", "sim_net", "contextlib", "outcome"})
# Where `zoneinfo` reads time zones, from C: its caller would be taken for the one that opens the file.
_TIME_ZONES: Final = tuple(f"{path}/" for path in zoneinfo.TZPATH)

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
        self._thread = 0
        #: Seconds since the epoch, for log records.
        self.wall_time_s = wall_time_s

    def forbids(self, module: str) -> bool:
        """Whether the module of this name belongs to one of the packages."""
        forbidden = self._forbidden.get(module)
        if forbidden is None:
            forbidden = any(module == package or module.startswith(f"{package}.") for package in self._packages)
            self._forbidden[module] = forbidden
        return forbidden

    def refuse(self, what: str, frame: FrameType | None = None) -> NoReturn:
        """Fail the world and raise `Tripwire`. `frame` made the call: the first that is not Trio's, if not given."""
        frame = frame or sys._getframe(1)
        while frame.f_back is not None and module_name(frame).partition(".")[0] in _BETWEEN:
            frame = frame.f_back
        who = f'in {frame.f_code.co_qualname} (file "{frame.f_code.co_filename}", line {frame.f_lineno})'
        text = f"a simulated program may not touch the real world: {what}, {who}; instead, {remedy(what)}"
        self._fail(ForbiddenCall(text))
        raise Tripwire(what)

    def check(self, what: str, frame: FrameType | None) -> None:
        """Refuse, if the call of `frame` is the program's own, and in the thread of the run."""
        while frame is not None and module_name(frame).partition(".")[0] in _THIN:
            frame = frame.f_back
        if frame is not None and self.forbids(module_name(frame)) and threading.get_ident() == self._thread:
            self.refuse(what, frame)

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Be the guard of this process, for this thread. RuntimeError when a world runs already."""
        global _active, _hook_installed  # noqa: PLW0603 - of the process, not of a world
        if _active is not None:
            raise RuntimeError("another world is running in this process")
        if not _hook_installed:
            sys.addaudithook(_audit)
            _hook_installed = True
        self._thread = threading.get_ident()
        _active = self
        try:
            with watched_by(self, self._packages):
                yield
        finally:
            _active = None


def _audit(event: str, args: tuple[Any, ...]) -> None:
    if _active is not None and event in _AUDITED:
        what = _AUDITED[event]
        if event == "open":
            if isinstance(args[0], str) and args[0].startswith(_TIME_ZONES):
                return
            what = f"{what} ({args[0]!r})"
        _active.check(what, sys._getframe(1))
