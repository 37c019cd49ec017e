"""Programs that reach for something that differs between runs, and programs that only look as if they did.

Each leak is refused while the world runs, or found by running twice, or by comparing processes; or it does no harm,
because the world takes it over. No clean program is accused by the guard, by a second run, or by another process.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import copy
import dataclasses
import datetime
import datetime as aliased
import decimal
import enum
import functools
import gc
import gzip
import hashlib
import heapq
import importlib
import inspect
import io
import itertools
import json
import logging
import os
import pickle
import random
import re
import secrets
import signal
import socket
import sqlite3
import string
import struct
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import typing
import urllib.request
import uuid
import warnings
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from datetime import date
from datetime import datetime as imported_datetime
from pathlib import Path
from random import random as imported_random
from time import time as imported_time
from uuid import uuid4 as imported_uuid4

import attrs
import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from sim_net import ForbiddenCall, Node, NotDeterministic, World, check_deterministic

PROJECT = Path(__file__).parents[2]
Program = Callable[[Node], Awaitable[None]]


def run_program(program: Program) -> str:
    """Run it on the one node of a guarded world; the digest."""

    async def main(world: World) -> None:
        node = world.node("a")
        node.boot(program)
        await node.wait_down()

    world = World(1, guard_packages=(__name__,))
    world.run(main)
    return world.digest


def print_digests(*names: str) -> None:
    for name in names:
        program = CLEAN.get(name) or LEAKS[name][1]
        sys.stdout.write(f"{name}: {run_program(program)}\n")


def digests_elsewhere(hash_seed: int, *names: str, options: tuple[str, ...] = ()) -> list[str]:
    """What another process prints."""
    code = f"from tests.simulation.test_leak_zoo import print_digests\nprint_digests(*{names!r})"
    done = subprocess.run(
        [sys.executable, "-W", "error", *options, "-c", code],
        env={**os.environ, "PYTHONHASHSEED": str(hash_seed)},
        cwd=PROJECT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


# --- leaks ------------------------------------------------------------------------------------------------------------

#: How a leak ends: refused by the guard (naming the call), found by a second run, by another process, or harmless.
REFUSED, SECOND_RUN, OTHER_PROCESS, HARMLESS = "refused", "second run", "other process", "harmless"
LEAKS: dict[str, tuple[str, Program, str]] = {}


def leak(caught: str, named: str = "", *, name: str = "") -> Callable[[Program], Program]:
    def add(program: Program) -> Program:
        LEAKS[name or program.__name__] = (caught, program, named)
        return program

    return add


def calls(name: str, call: Callable[[], object], named: str) -> None:
    """A leak that is one call, refused with these words."""

    async def program(node: Node) -> None:
        await trio.sleep(0.5)
        with contextlib.suppress(Exception):
            call()
        await trio.sleep(0.5)

    leak(REFUSED, named, name=name)(program)


def takes_time(clock: Callable[[], float] = time.time) -> float:
    return clock()


class Timer:
    clock = time.monotonic

    def __init__(self, now: Callable[[], float] = time.perf_counter) -> None:
        self.started_s = now()


HERE = Path(__file__)
calls("time", lambda: time.time(), "time.time()")
calls("time imported by name", lambda: imported_time(), "time.time()")
calls("time as a default argument", takes_time, "time.time()")
calls("time as a default argument of a method", Timer, "time.perf_counter()")
calls("time as a class attribute", lambda: Timer.clock(), "time.monotonic()")
calls("clock_gettime", lambda: time.clock_gettime(time.CLOCK_MONOTONIC), "time.clock_gettime()")
calls("localtime of now", lambda: time.localtime(), "time.localtime()")
calls("strftime of now", lambda: time.strftime("%H"), "time.strftime()")
calls("sleep", lambda: time.sleep(0), "time.sleep()")
calls("datetime.now", lambda: datetime.datetime.now(datetime.UTC), "datetime.datetime.now()")
calls("datetime.utcnow of an alias", lambda: aliased.datetime.utcnow(), "datetime.datetime.utcnow()")
calls("datetime imported by name", lambda: imported_datetime.now(), "datetime.datetime.now()")
calls("date.today", lambda: date.today(), "datetime.date.today()")
calls("urandom", lambda: os.urandom(4), "os.urandom()")
calls("uuid", lambda: uuid.uuid4(), "uuid.uuid4()")
calls("uuid imported by name", lambda: imported_uuid4(), "uuid.uuid4()")
calls("uuid of this machine", lambda: uuid.uuid1(), "uuid.uuid1()")
calls("secrets", lambda: secrets.token_hex(), "secrets.token_hex()")
calls("module random", lambda: random.random(), "random.random()")
calls("random imported by name", lambda: imported_random(), "random.random()")
calls("random without a seed", lambda: random.Random(), "a random.Random without a seed")
calls("random seeded again", lambda: random.Random(1).seed(), "a random.Random without a seed")
calls("random of the system", lambda: random.SystemRandom().choice([1, 2]), "random.SystemRandom")
calls("process id", lambda: os.getpid(), "os.getpid()")
calls("thread", lambda: threading.Thread(target=lambda: None).start(), "starting a thread")
calls("timer thread", lambda: threading.Timer(0, lambda: None).start(), "starting a thread")
calls("real socket", lambda: socket.socket(), "making a real socket")
calls("socket pair", lambda: socket.socketpair(), "making a real socket pair")
calls("real connection", lambda: urllib.request.urlopen("http://127.0.0.1:1"), "looking up a real name")
calls("real file", lambda: open(HERE), "opening a real file")  # noqa: PTH123
calls("real file through pathlib", lambda: HERE.read_text(), "opening a real file")
calls("real file through gzip", lambda: gzip.open(HERE), "opening a real file")
calls("real file, temporary", lambda: tempfile.TemporaryFile(), "real")
calls("real directory", lambda: list(PROJECT.iterdir()), "listing a real directory")
calls("status of a real file", lambda: HERE.exists(), "os.stat()")
calls("status of a real file, old style", lambda: os.path.exists(HERE), "os.stat()")  # noqa: PTH110
calls("real database", lambda: sqlite3.connect(":memory:"), "opening a real database")
calls("subprocess", lambda: subprocess.run(["true"], check=False), "starting a process")
calls("fork", lambda: os.fork(), "starting a process")
calls("signal handler", lambda: signal.signal(signal.SIGUSR1, signal.SIG_IGN), "signal.signal()")
calls("asyncio", lambda: asyncio.new_event_loop(), "making a real socket pair")
calls("garbage collector turned on", lambda: gc.enable(), "garbage collector")


def awaits(name: str, call: Callable[[], Awaitable[object]], named: str) -> None:
    async def program(node: Node) -> None:
        await call()

    leak(REFUSED, named, name=name)(program)


awaits("worker thread", lambda: trio.to_thread.run_sync(len, ""), "a worker thread")
awaits("trio.Path", lambda: trio.Path(HERE).exists(), "a worker thread")
awaits("trio.open_file", lambda: trio.open_file(HERE), "a worker thread")
awaits("trio.run_process", lambda: trio.run_process(["true"]), "real")
awaits("wait for a real descriptor", lambda: trio.lowlevel.wait_readable(0), "real descriptor")


class Thing:
    """Hashed by its address, as objects are."""

    def __init__(self, number: int) -> None:
        self.number = number


def things() -> list[Thing]:
    return [Thing(number) for number in range(20)]


async def start_in_order(numbers: list[int]) -> None:
    async with trio.open_nursery() as nursery:
        for number in numbers:
            nursery.start_soon(trio.sleep, number, name=f"sleeper {number}")


@leak(SECOND_RUN, "sleeper")
async def order_of_a_set_of_objects(node: Node) -> None:
    await start_in_order([thing.number for thing in set(things())])


@leak(SECOND_RUN, "sleeper")
async def order_of_ids(node: Node) -> None:
    await start_in_order([thing.number for thing in sorted(things(), key=id)])


@leak(SECOND_RUN, "sleeper")
async def order_of_default_hashes(node: Node) -> None:
    await start_in_order([thing.number for thing in sorted(things(), key=hash)])


@leak(SECOND_RUN, "sleeper")
async def address_in_a_text(node: Node) -> None:
    await start_in_order([int(repr(thing)[-6:-1], 16) for thing in things()])


_kept = itertools.count()


@leak(SECOND_RUN, "time moves to")
async def state_of_an_earlier_run(node: Node) -> None:
    await trio.sleep(1 + next(_kept))


@leak(SECOND_RUN, "journal: a note")
async def random_made_before_the_run(node: Node) -> None:
    current_world(node).journal.record("a", "note", drawn=str(_RANDOM_BEFORE.random()))


_RANDOM_BEFORE = random.Random()


@leak(SECOND_RUN, "order")
async def order_of_aborts_under_one_deadline(node: Node) -> None:
    """Trio goes through sets when a deadline passes, so what abort functions do must not depend on their order."""
    order: list[int] = []

    async def wait(number: int) -> None:
        def abort(_: object) -> trio.lowlevel.Abort:
            order.append(number)
            return trio.lowlevel.Abort.SUCCEEDED

        await trio.lowlevel.wait_task_rescheduled(abort)

    with trio.move_on_after(1):
        async with trio.open_nursery() as nursery:
            for number in range(20):
                nursery.start_soon(wait, number)
    current_world(node).journal.record("a", "note", order=str(order))


@leak(OTHER_PROCESS)
async def order_of_a_set_of_strings(node: Node) -> None:
    await start_in_order([string.ascii_lowercase.index(letter) for letter in set(string.ascii_lowercase)])


@leak(OTHER_PROCESS)
async def hash_of_a_string(node: Node) -> None:
    await trio.sleep(hash("a") % 1000)


@leak(HARMLESS)
async def finalizer_of_garbage(node: Node) -> None:
    """The cyclic collector is off during a run, so no finalizer comes in between."""

    class Cyclic:
        def __init__(self) -> None:
            self.me = self

        def __del__(self) -> None:
            finalized.append(self)

    finalized: list[object] = []
    for _ in range(5000):
        Cyclic()
        if finalized:
            await trio.sleep(1)
    await trio.sleep(1)


@leak(HARMLESS)
async def abandoned_async_generator(node: Node) -> None:
    """Trio finalizes it through a real socket pair, but at the same step in every run."""

    async def numbers() -> AsyncIterator[int]:
        try:
            yield 1
        finally:
            finalized.append(trio.current_time())

    finalized: list[float] = []
    await trio.sleep(1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        async for _ in numbers():
            break
        await trio.sleep(1)
    assert finalized == [1.0]


@leak(HARMLESS)
async def deadlines_at_one_instant(node: Node) -> None:
    """Scopes with one deadline are cancelled in an order of addresses; Trio's own waits do not mind."""
    event, condition, limiter = trio.Event(), trio.Condition(), trio.CapacityLimiter(1)
    send, receive = trio.open_memory_channel[int](0)
    await limiter.acquire_on_behalf_of(node)

    async def wait_for_condition() -> None:
        async with condition:
            await condition.wait()

    async def wait_for_limiter() -> None:
        async with limiter:
            pass

    async def give_up(wait: Callable[[], Awaitable[object]], pause_s: float) -> None:
        while trio.current_time() < 3:
            with trio.move_on_at(trio.current_time() + 1):
                await wait()
            await trio.sleep(pause_s)

    async with trio.open_nursery() as nursery:
        for number in range(8):
            for wait in (event.wait, wait_for_condition, wait_for_limiter, receive.receive, trio.sleep_forever):
                nursery.start_soon(give_up, wait, 0.25 * (number % 3))
    await send.aclose()


def current_world(node: Node) -> World:
    return node._world


def caught_by(name: str) -> list[str]:
    return [each for each, (caught, _, _) in LEAKS.items() if caught == name]


# An event loop of asyncio that could not be made complains when it is collected.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("name", caught_by(REFUSED))
def test_refused(name: str) -> None:
    _, program, named = LEAKS[name]
    with pytest.raises(ForbiddenCall) as info:
        run_program(program)
    assert named in str(info.value)


@pytest.mark.parametrize("name", caught_by(SECOND_RUN))
def test_found_by_a_second_run(name: str) -> None:
    _, program, named = LEAKS[name]
    with pytest.raises(NotDeterministic) as info:
        check_deterministic(lambda: run_program(program))
    difference = info.value.difference
    assert named in difference.first
    assert named in difference.second
    assert difference.before


def test_found_by_comparing_processes() -> None:
    names = caught_by(OTHER_PROCESS)
    here, there = digests_elsewhere(1, *names), digests_elsewhere(4242, *names)
    assert [a == b for a, b in zip(here, there, strict=True)] == [False] * len(names)
    assert digests_elsewhere(1, *names) == here


@pytest.mark.parametrize("name", caught_by(HARMLESS))
def test_harmless(name: str) -> None:
    check_deterministic(lambda: run_program(LEAKS[name][1]))


def test_harmless_in_other_processes_too() -> None:
    names = caught_by(HARMLESS)
    assert digests_elsewhere(1, *names) == digests_elsewhere(4242, *names, options=("-X", "dev"))


# --- clean programs ---------------------------------------------------------------------------------------------------

CLEAN: dict[str, Program] = {}


def clean(program: Callable[[], object]) -> Callable[[], object]:
    """What a program may do between two sleeps."""

    async def run(node: Node) -> None:
        await trio.sleep(1)
        program()
        await trio.sleep(1)

    CLEAN[program.__name__] = run
    return program


_log_file = io.StringIO()


@clean
def logs() -> None:
    logger = logging.getLogger("zoo")
    handler = logging.StreamHandler(_log_file)
    handler.setFormatter(logging.Formatter("%(asctime)s %(process)d %(message)s"))
    logger.addHandler(handler)
    try:
        logger.warning("at %s", trio.current_time())
        try:
            raise LookupError("x")
        except LookupError:
            logger.exception("with a traceback")
    finally:
        logger.removeHandler(handler)
    assert "2024-01-01" in _log_file.getvalue() or "2023-12-31" in _log_file.getvalue()


@dataclasses.dataclass(order=True)
class Point:
    x: int
    y: int = 0
    when: datetime.datetime | None = None


@attrs.define
class Shape:
    name: str = attrs.field(validator=attrs.validators.instance_of(str))
    made: datetime.datetime = attrs.field(
        factory=lambda: datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC),
        validator=attrs.validators.instance_of(datetime.datetime),
    )


class Pair(typing.NamedTuple):
    a: int
    b: int


class Color(enum.Enum):
    RED = 1
    BLUE = 2


@clean
def makes_values() -> None:
    assert dataclasses.replace(Point(1), y=2) == Point(1, 2)
    assert dataclasses.make_dataclass("Made", ["a"])(1).a == 1
    assert attrs.evolve(Shape("a"), name="b").name == "b"
    assert attrs.make_class("Made", ["a"])(1).a == 1
    assert Color["RED"] is Color(1)
    assert Pair(1, 2)._replace(b=3).b == 3
    assert typing.get_type_hints(Point)["x"] is int
    assert copy.deepcopy(Shape("a")) == Shape("a")
    assert pickle.loads(pickle.dumps(Point(1, 2))) == Point(1, 2)


@clean
def works_with_given_dates() -> None:
    new_year = datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC)
    assert type(new_year).__module__ == "datetime"
    assert isinstance(new_year, datetime.datetime)
    assert isinstance(new_year, imported_datetime)
    assert isinstance(new_year, datetime.date)
    assert issubclass(datetime.datetime, date)
    assert not isinstance("x", datetime.datetime)
    assert new_year == imported_datetime.fromisoformat("2024-01-01T00:00:00+00:00")
    assert new_year == datetime.datetime.fromtimestamp(1_704_067_200, datetime.UTC)
    assert datetime.datetime.combine(date(2024, 1, 1), datetime.time(0), datetime.UTC) == new_year
    assert datetime.datetime.strptime("2024 +0000", "%Y %z") == new_year
    assert pickle.loads(pickle.dumps(new_year)) == copy.deepcopy(new_year) == new_year
    assert {datetime.datetime: "found"}[type(new_year)] == "found"
    assert type(new_year) == datetime.datetime  # noqa: E721 - what stands in for the class must equal it
    assert datetime.datetime.max.year > new_year.year > datetime.datetime.min.year
    assert json.dumps(new_year, default=str) == '"2024-01-01 00:00:00+00:00"'
    match new_year:
        case datetime.datetime(year=year):
            assert year == 2024

    class Stamp(datetime.datetime):
        pass

    stamp = Stamp(2024, 1, 1)
    assert isinstance(stamp, Stamp)
    assert not isinstance(new_year, Stamp)
    assert type(stamp + datetime.timedelta(1)) is Stamp
    assert time.strftime("%Y", time.gmtime(0)) == "1970"
    assert time.localtime(86_400 * 365.25).tm_year == 1971


@clean
def uses_the_standard_library() -> None:
    assert json.loads(json.dumps({"a": [1, None, 2.5]})) == {"a": [1, None, 2.5]}
    assert struct.unpack("<I", struct.pack("<I", 7)) == (7,)
    assert collections.Counter("abca").most_common(1) == [("a", 2)]
    assert collections.OrderedDict(a=1) == {"a": 1}
    assert heapq.nsmallest(2, [3, 1, 2]) == [1, 2]
    assert re.sub(r"\d+", "x", "a1b22") == "axbx"
    assert str(decimal.Decimal("0.1") + 1) == "1.1"
    assert hashlib.sha256(b"x").hexdigest().startswith("2d71")
    assert hashlib.new("md5", b"x", usedforsecurity=False).digest_size == 16
    assert zlib.crc32(b"x") == zlib.crc32(zlib.decompress(zlib.compress(b"x")))
    assert gzip.decompress(gzip.compress(b"x", mtime=0)) == b"x"
    assert io.BytesIO(b"x").read() == b"x"
    assert random.Random(7).random() == random.Random(7).random()
    assert random.Random("text").choice("abc") in "abc"
    assert str(uuid.uuid5(uuid.NAMESPACE_DNS, "x")) == str(uuid.UUID(str(uuid.uuid5(uuid.NAMESPACE_DNS, "x"))))
    assert Path("a") / "b" == Path("a/b")
    assert threading.Lock().acquire()
    assert secrets.compare_digest("a", "a")


@functools.cache
def slow(number: int) -> int:
    return number + 1


@clean
def uses_caches_and_context_managers() -> None:
    @contextlib.contextmanager
    def manager() -> Iterator[int]:
        yield 1

    with manager() as one, contextlib.ExitStack() as stack, contextlib.suppress(LookupError):
        stack.callback(lambda: None)
        assert slow(one) == 2
        raise LookupError
    assert functools.lru_cache(maxsize=1)(slow)(1) == 2
    assert functools.partial(slow, 1)() == 2


@clean
def looks_at_itself() -> None:
    assert "looks_at_itself" in inspect.getsource(looks_at_itself)
    assert list(inspect.signature(slow).parameters) == ["number"]
    try:
        raise LookupError("x")
    except LookupError as error:
        assert "raise LookupError" in "".join(traceback.format_exception(error))
        assert traceback.TracebackException.from_exception(error).stack
    assert traceback.format_stack()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warnings.warn("x", stacklevel=1)
    assert "UserWarning" in str(caught[0])


@clean
def imports() -> None:
    sys.modules.pop("colorsys", None)
    assert importlib.import_module("colorsys").rgb_to_hsv(0, 0, 0)
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("no_such_module")


@clean
def collects_garbage() -> None:
    garbage: list[object] = []
    garbage.append(garbage)
    del garbage
    gc.collect()


@clean
def asserts_that_fail() -> None:
    with pytest.raises(AssertionError):
        assert {"a": 1} == {"a": 2, "b": [1, 2]}, "told by pytest's rewriting"


async def opens_groups(node: Node) -> None:
    """Nurseries, cancellation, channels, groups of errors."""

    async def fail(number: int) -> None:
        await trio.sleep(number)
        raise LookupError(number)

    for _ in range(3):
        with contextlib.suppress(BaseExceptionGroup):
            async with trio.open_nursery() as nursery:
                for number in (2, 2, 2):
                    nursery.start_soon(fail, number)
    assert trio.current_time() == 6
    assert trio.lowlevel.current_statistics().tasks_living
    assert repr(trio.lowlevel.current_task())


CLEAN["opens_groups"] = opens_groups


async def draws_seeded_randomness(node: Node) -> None:
    await trio.sleep(node.entropy.random())
    await trio.sleep(random.Random(node.entropy.token_bytes(4)).random())


CLEAN["draws_seeded_randomness"] = draws_seeded_randomness


@pytest.mark.parametrize("name", CLEAN)
def test_clean_programs_are_not_accused(name: str) -> None:
    check_deterministic(lambda: run_program(CLEAN[name]))


def test_clean_programs_are_the_same_in_other_processes() -> None:
    assert digests_elsewhere(1, *CLEAN) == digests_elsewhere(4242, *CLEAN, options=("-X", "dev"))


@given(st.lists(st.floats(0, 10), max_size=5))
@settings(max_examples=20)
def test_clean_under_hypothesis(pauses_s: list[float]) -> None:
    async def program(node: Node) -> None:
        for pause_s in pauses_s:
            await trio.sleep(pause_s)

    check_deterministic(lambda: run_program(program))
