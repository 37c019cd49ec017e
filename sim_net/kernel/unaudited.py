"""Ways into the real world that Python does not audit: clocks, randomness, threads, file status, ...

During a run each is replaced by a wrapper that asks the guard about its caller: in the module it comes from, and in
the guarded modules that had imported it by name, kept it as a class attribute or as a default argument before the run.
`datetime` is written in C and cannot be changed, so guarded modules see stand-ins for its classes. Afterwards all is
as it was; a wrapper that somebody has kept (a module imported during a run) then only calls the real function.
"""

from __future__ import annotations

import _thread
import datetime as dt
import functools
import gc
import os
import random
import secrets
import signal
import socket
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType, FunctionType, ModuleType
from typing import Any, Final, Protocol

import attrs


class Watcher(Protocol):
    """What a wrapper asks: the guard of the world that runs."""

    def forbids(self, module: str) -> bool:
        """Whether the module of this name may not touch the real world."""

    def check(self, what: str, frame: FrameType | None) -> None:
        """Raise, if the call of `frame` is a forbidden module's."""

    def wall_time_s(self) -> float:
        """Virtual seconds since the epoch."""


Arguments = tuple[Any, ...]
Condition = Callable[[Arguments, dict[str, Any]], bool]


def _without(position: int, name: str) -> Condition:
    """The condition that an argument is missing or None."""
    return lambda args, kwargs: (args[position] if len(args) > position else kwargs.get(name)) is None


# Owner, names, how it is called in a report (if not by owner and name), when it is refused (if not always).
_FUNCTIONS: Final[tuple[tuple[ModuleType | type, tuple[str, ...], str, Condition | None], ...]] = (
    (
        time,
        (
            "time", "time_ns", "monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns", "process_time",
            "process_time_ns", "thread_time", "thread_time_ns", "clock_gettime", "clock_gettime_ns", "sleep",
        ),
        "",
        None,
    ),
    (time, ("localtime", "gmtime", "ctime", "asctime"), "", _without(0, "")),
    (time, ("strftime",), "", _without(1, "")),
    (os, ("urandom", "getrandom", "getpid", "getppid", "times", "stat", "lstat", "access", "chdir"), "", None),
    (
        random,
        (
            "random", "uniform", "randint", "randrange", "getrandbits", "randbytes", "choice", "choices", "sample",
            "shuffle", "seed", "gauss", "normalvariate", "expovariate", "triangular", "betavariate", "lognormvariate",
            "vonmisesvariate", "gammavariate", "paretovariate", "weibullvariate", "getstate", "setstate",
        ),
        "",
        None,
    ),
    (random.Random, ("seed",), "a random.Random without a seed", _without(1, "a")),
    (random.SystemRandom, ("random", "getrandbits", "randbytes"), "random.SystemRandom", None),
    (uuid, ("uuid1", "uuid4", "getnode"), "", None),
    (secrets, ("token_bytes", "token_hex", "token_urlsafe", "choice", "randbelow", "randbits"), "", None),
    (gc, ("enable",), "turning the cyclic garbage collector on", None),
    (socket, ("socketpair",), "making a real socket pair", None),
    (signal, ("signal", "alarm", "setitimer"), "", None),
    (_thread, ("start_new_thread",), "starting a thread", None),
    (threading, ("_start_new_thread",), "starting a thread", None),
)  # fmt: skip
_CLASSES: Final = ((dt.datetime, ("now", "utcnow", "today")), (dt.date, ("today",)))

_watcher: Watcher | None = None


def module_name(frame: FrameType) -> str:
    """The name of the module that a frame's code belongs to."""
    return str(frame.f_globals.get("__name__", ""))


@contextmanager
def watched_by(watcher: Watcher, packages: tuple[str, ...]) -> Iterator[None]:
    """Put the wrappers in place, ask `watcher` about each call, and put everything back."""
    global _watcher  # noqa: PLW0603 - of the process, not of a world
    places = [*_own_places(), *_places_within(packages)]
    _watcher = watcher
    for place in places:
        place.replace()
    try:
        yield
    finally:
        for place in places:
            place.restore()
        _watcher = None


@attrs.frozen
class _Place:
    """An attribute that holds something real, or a tuple with something real in it."""

    owner: Any
    name: str
    real: Any
    wrapper: Any

    def replace(self) -> None:
        if getattr(self.owner, self.name, None) is self.real:
            setattr(self.owner, self.name, self.wrapper)

    def restore(self) -> None:
        if getattr(self.owner, self.name, None) is self.wrapper:
            setattr(self.owner, self.name, self.real)


@functools.cache
def _own_places() -> tuple[_Place, ...]:
    places = []
    for owner, names, called, condition in _FUNCTIONS:
        for name in names:
            real = getattr(owner, name, None)
            if real is not None:
                what = called or f"{owner.__name__}.{name}()"
                places.append(_Place(owner, name, real, _wrapped(what, real, condition)))
    return tuple(places)


@functools.cache
def _stand_ins() -> dict[int, tuple[Any, Any]]:
    """Something real and what guarded modules see instead of it, by the id of the real thing, which never dies."""
    functions = [place for place in _own_places() if isinstance(place.owner, ModuleType)]
    stand_ins = {id(place.real): (place.real, place.wrapper) for place in functions}
    classes = {real.__name__: _watched_class(real, names) for real, names in _CLASSES}
    stand_ins |= {id(real): (real, classes[real.__name__]) for real, _ in _CLASSES}
    module = ModuleType("datetime", dt.__doc__)
    vars(module).update(vars(dt), **classes)
    stand_ins[id(dt)] = (dt, module)
    return stand_ins


@attrs.define(eq=False, repr=False)
class _Scan:
    """What was found in the modules of some packages, as long as they are the ones loaded and have no new names."""

    modules_loaded: int
    modules: dict[str, ModuleType]
    names: int
    places: list[_Place]

    def is_fresh(self) -> bool:
        loaded = sys.modules
        return (
            len(loaded) == self.modules_loaded
            and all(loaded.get(name) is module for name, module in self.modules.items())
            and _count_names(self.modules) == self.names
        )


_scans: Final[dict[tuple[str, ...], _Scan]] = {}


def _places_within(packages: tuple[str, ...]) -> list[_Place]:
    """Where modules of `packages` hold something real. Cached, because a run is short and modules are many."""
    scan = _scans.get(packages)
    if scan is None or not scan.is_fresh():
        prefixes = tuple(f"{package}." for package in packages)
        modules = {
            name: module
            for name, module in sys.modules.items()
            if type(module) is ModuleType and (name in packages or name.startswith(prefixes))
        }
        places = [place for module in modules.values() for place in _places_in(module)]
        scan = _scans[packages] = _Scan(len(sys.modules), modules, _count_names(modules), places)
    return scan.places


def _count_names(modules: dict[str, ModuleType]) -> int:
    return sum(len(vars(module)) for module in modules.values())


def _places_in(module: ModuleType) -> Iterator[_Place]:
    for owner in (module, *(each for each in vars(module).values() if _is_class_of(each, module.__name__))):
        for name, value in list(vars(owner).items()):
            if (found := _stand_ins().get(id(value))) is not None:
                yield _Place(owner, name, *found)
            elif type(value) is FunctionType and value.__module__ == module.__name__:
                defaults = value.__defaults__ or ()
                if any(id(each) in _stand_ins() for each in defaults):
                    replaced = tuple(_stand_ins().get(id(each), (each, each))[1] for each in defaults)
                    yield _Place(value, "__defaults__", value.__defaults__, replaced)


def _is_class_of(value: object, module: str) -> bool:
    return isinstance(value, type) and value.__module__ == module


def _wrapped(what: str, real: Callable[..., object], condition: Condition | None) -> Callable[..., object]:
    is_time = real is time.time

    @functools.wraps(real)
    def wrapper(*args: Any, **kwargs: Any) -> object:
        watcher = _watcher
        if watcher is not None:
            frame = sys._getframe(1)
            if condition is None or condition(args, kwargs):
                watcher.check(what, frame)
            if is_time and module_name(frame) == "logging":
                return watcher.wall_time_s()
        return real(*args, **kwargs)

    return wrapper


def _watched_class(real: type, names: tuple[str, ...]) -> type:
    """A class that makes and knows instances of `real`, and asks before it tells the time."""

    class Meta(type):
        def __instancecheck__(cls, instance: object) -> bool:
            return isinstance(instance, real) if cls is watched else super().__instancecheck__(instance)

        def __subclasscheck__(cls, subclass: type) -> bool:
            return issubclass(subclass, real) if cls is watched else super().__subclasscheck__(subclass)

        def __eq__(cls, other: object) -> bool:
            return other is cls or (cls is watched and other is real)

        def __hash__(cls) -> int:
            return hash(real) if cls is watched else super().__hash__()

    def new(cls: type, *args: Any, **kwargs: Any) -> object:
        return real(*args, **kwargs) if cls is watched else real.__new__(cls, *args, **kwargs)

    def teller(name: str) -> Any:
        def tell(cls: type, *args: Any, **kwargs: Any) -> object:
            if _watcher is not None:
                _watcher.check(f"{real.__module__}.{real.__name__}.{name}()", sys._getframe(1))
            return getattr(super(watched, cls), name)(*args, **kwargs)

        return classmethod(tell)

    body = {"__new__": new, "__module__": real.__module__, "__doc__": real.__doc__, "__slots__": ()}
    watched: type = Meta(real.__name__, (real,), body | {name: teller(name) for name in names})
    return watched
