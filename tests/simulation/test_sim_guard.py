"""The facts about Trio that sim_net leans on (`kernel.determinism` numbers them), and what the guard refuses."""

from __future__ import annotations

import dataclasses
import functools
import importlib
import io
import linecache
import logging
import os
import random
import re
import secrets
import socket
import subprocess
import sys
import threading
import time
import traceback
import uuid
import zoneinfo
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

import pytest
import trio
import trio.testing
from trio._core import _run, _thread_cache

from sim_net import ForbiddenCall, Node, NodeFailed, World, WorldConfig
from sim_net.kernel import guard
from sim_net.kernel.determinism import LONGEST_SLEEP_S, extend_run_queue, filter_run_queue
from sim_net.kernel.guard import Tripwire
from sim_net.kernel.remedies import remedy

HERE = (__name__,)

# --- facts about Trio -------------------------------------------------------------------------------------------------


class Recorder(trio.abc.Instrument):
    def __init__(self) -> None:
        self.steps: list[str] = []
        self.spawned: list[str] = []

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self.steps.append(task.name.rpartition(".")[2])

    def task_spawned(self, task: trio.lowlevel.Task) -> None:
        self.spawned.append(task.name.rpartition(".")[2])


def schedule_of(seed: str | None, *, flag: bool, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.setattr(_run, "_ALLOW_DETERMINISTIC_SCHEDULING", flag)
    if seed is not None:
        _run._r.seed(seed)
    order: list[str] = []

    async def worker(name: str) -> None:
        event.set()
        for _ in range(5):
            order.append(name)
            await trio.lowlevel.checkpoint()

    event = trio.Event()

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            for number in range(8):
                nursery.start_soon(worker, str(number))

    trio.run(main)
    return order


def test_fact_1_the_scheduler_is_seeded_by_two_private_names(monkeypatch: pytest.MonkeyPatch) -> None:
    state = _run._r.getstate()
    try:
        with_both = {tuple(schedule_of("s", flag=True, monkeypatch=monkeypatch)) for _ in range(4)}
        unseeded = {tuple(schedule_of(None, flag=True, monkeypatch=monkeypatch)) for _ in range(4)}
        other_seed = schedule_of("other", flag=True, monkeypatch=monkeypatch)
    finally:
        _run._r.setstate(state)
    assert len(with_both) == 1
    assert len(unseeded) > 1
    assert tuple(other_seed) not in with_both


def test_fact_1_a_batch_is_shown_before_it_runs_from_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[list[str]] = []
    ran: list[str] = []

    class Generator:
        def shuffle(self, batch: list[trio.lowlevel.Task]) -> None:
            batch.reverse()
            ran.append("|")
            shown.append([task.name for task in batch])

    async def worker(name: str) -> None:
        for _ in range(2):
            ran.append(name)
            await trio.lowlevel.checkpoint()

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            for name in "abc":
                nursery.start_soon(worker, name, name=name)

    monkeypatch.setattr(_run, "_ALLOW_DETERMINISTIC_SCHEDULING", True)
    monkeypatch.setattr(_run, "_r", Generator())
    trio.run(main, clock=StoppedClock())
    assert ["c", "b", "a"] in shown
    batches = [batch for batch in "".join(ran).split("|") if batch]
    assert batches == ["abc", "abc"]


def test_fact_2_threads_come_from_the_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []

    class Cache:
        def start_thread_soon(self, fn: object, deliver: object, name: str | None = None) -> None:
            asked.append(fn)
            raise LookupError

    monkeypatch.setattr(_thread_cache, "THREAD_CACHE", Cache())

    async def main() -> None:
        with pytest.raises(LookupError):
            await trio.to_thread.run_sync(time.time)

    trio.run(main)
    assert len(asked) == 1


class StoppedClock(trio.abc.Clock):
    """A clock that notes how it is asked, and runs `idle` when it is."""

    def __init__(self, idle: Callable[[float], object] = lambda _: None) -> None:
        self.now = 0.0
        self.asked: list[float] = []
        self.idle = idle

    def start_clock(self) -> None: ...

    def current_time(self) -> float:
        return self.now

    def deadline_to_sleep_time(self, deadline: float) -> float:
        assert not _run.GLOBAL_RUN_CONTEXT.runner.runq
        self.asked.append(deadline)
        self.idle(deadline)
        if deadline != float("inf"):
            self.now = max(self.now, deadline)
        return 0.0


def test_fact_3_the_clock_is_asked_only_when_no_task_can_run() -> None:
    clock = StoppedClock()

    async def spin() -> None:
        for _ in range(50):
            await trio.lowlevel.checkpoint()

    async def main() -> None:
        await spin()
        assert clock.asked == []
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.sleep, 5)
            nursery.start_soon(trio.sleep, 9)
            nursery.start_soon(spin)

    trio.run(main, clock=clock)
    assert clock.asked[:2] == [5.0, 9.0]


def test_fact_4_the_idle_clock_may_reschedule_spawn_and_cancel() -> None:
    happened: list[str] = []
    waiting: list[trio.lowlevel.Task] = []
    actions: list[Callable[[], object]] = []

    async def spawned() -> None:
        happened.append("spawned")

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            waiting.append(trio.lowlevel.current_task())
            actions.append(lambda: trio.lowlevel.reschedule(waiting.pop()))
            await trio.lowlevel.wait_task_rescheduled(lambda _: trio.lowlevel.Abort.FAILED)
            happened.append("rescheduled")
            with trio.CancelScope() as scope:
                actions.append(lambda: nursery.start_soon(spawned))
                actions.append(scope.cancel)
                await trio.sleep_forever()
            happened.append("cancelled")
            with trio.CancelScope() as scope:
                actions.append(lambda: setattr(scope, "deadline", 3.0))
                await trio.sleep_forever()
            happened.append(f"deadline at {trio.current_time()}")

    trio.run(main, clock=StoppedClock(lambda _: actions.pop(0)() if actions else None))
    assert happened == ["rescheduled", "spawned", "cancelled", "deadline at 3.0"]


_CLOCK_RAISES = """
import trio

class Broken(trio.abc.Clock):
    def start_clock(self): pass
    def current_time(self): raise LookupError
    def deadline_to_sleep_time(self, deadline): return 0

async def main(): pass

try:
    trio.run(main, clock=Broken())
except trio.TrioInternalError as error:
    print(type(error.__cause__).__name__)
"""


def test_fact_5_an_exception_from_the_clock_is_an_internal_error() -> None:
    # In a process of its own: it leaves coroutines behind that complain when they are collected.
    done = subprocess.run([sys.executable, "-c", _CLOCK_RAISES], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "LookupError\n"


def test_fact_6_run_sync_soon_waits_in_the_entry_queue() -> None:
    async def main() -> None:
        await trio.lowlevel.checkpoint()
        runner = _run.GLOBAL_RUN_CONTEXT.runner
        assert runner.entry_queue.size() == 0
        done = trio.Event()
        trio.lowlevel.current_trio_token().run_sync_soon(done.set)
        assert runner.entry_queue.size() == 1
        assert list(runner.entry_queue.queue)
        assert not runner.entry_queue.idempotent_queue
        await done.wait()

    trio.run(main)


def test_fact_7_only_the_wake_up_socket_waits_for_io() -> None:
    async def main() -> None:
        await trio.lowlevel.checkpoint()
        runner = _run.GLOBAL_RUN_CONTEXT.runner
        statistics = trio.lowlevel.current_statistics()
        assert statistics.io_statistics.tasks_waiting_read == 1
        assert statistics.io_statistics.tasks_waiting_write == 0
        assert runner.entry_queue.wakeup.wakeup_sock.fileno() in runner.io_manager._registered

    trio.run(main)

    async def in_a_world(world: World) -> None:
        manager = _run.GLOBAL_RUN_CONTEXT.runner.io_manager
        assert type(manager).__name__ == "SimulatedIOManager"
        assert manager.get_events(0) == []
        done = trio.Event()
        trio.lowlevel.current_trio_token().run_sync_soon(done.set)
        await done.wait()  # found although nothing else goes on

    World(1).run(in_a_world)


def test_fact_8_spawn_and_step_order_are_the_same_for_a_seed() -> None:
    def record() -> tuple[list[str], list[str]]:
        recorder = Recorder()

        async def sleeper(scope: trio.CancelScope) -> None:
            with scope:
                await trio.sleep_forever()

        async def main(world: World) -> None:
            trio.lowlevel.add_instrument(recorder)
            async with trio.open_nursery() as nursery:
                scopes = [trio.CancelScope(deadline=1.0) for _ in range(30)]
                for number, scope in enumerate(scopes):
                    nursery.start_soon(sleeper, scope, name=f"sleeper{number}")

        World(5).run(main)
        return recorder.spawned, recorder.steps

    first = record()
    junk = [object() for _ in range(12345)]
    assert [record(), record()] == [first, first]
    assert len(junk) == 12345


def test_fact_11_scopes_may_be_cancelled_between_steps() -> None:
    class Canceller(trio.abc.Instrument):
        def __init__(self, moment: str, scope: trio.CancelScope) -> None:
            self.task = trio.lowlevel.current_task()
            setattr(self, moment, self.cancel)
            self.scope = scope

        def cancel(self, task: trio.lowlevel.Task) -> None:
            if task is self.task:
                self.scope.cancel()

    async def main(moment: str) -> bool:
        with trio.CancelScope() as scope:
            event = trio.Event()
            trio.lowlevel.current_trio_token().run_sync_soon(event.set)
            trio.lowlevel.add_instrument(Canceller(moment, scope))
            await event.wait()
            return True
        return False

    assert trio.run(main, "after_task_step") is False  # the wait was aborted
    assert trio.run(main, "before_task_step") is True  # it was over


def test_fact_9_shields_can_be_broken() -> None:
    async def main() -> None:
        task = trio.lowlevel.current_task()
        with trio.CancelScope() as outer, trio.CancelScope(shield=True) as inner:
            outer.cancel()
            await trio.lowlevel.checkpoint()
            status = task._cancel_status
            assert status._scope is inner
            assert status.parent is not None
            assert status.parent._scope is outer
            inner.shield = False
            with pytest.raises(trio.Cancelled):
                await trio.lowlevel.checkpoint()

    trio.run(main)


class _IdleClock(StoppedClock):
    """Tells Trio to sleep when somebody waits for all tasks to be blocked, and at no other time."""

    keys: list[float]

    def deadline_to_sleep_time(self, deadline: float) -> float:
        waiting = _run.GLOBAL_RUN_CONTEXT.runner.waiting_for_idle
        self.keys = [key[0] for key in waiting]
        return float("inf") if waiting else 0.0


def test_fact_12_who_waits_for_idle_goes_on_when_the_clock_says_sleep() -> None:
    clock = _IdleClock()

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.testing.wait_all_tasks_blocked, 0.001)
            await trio.testing.wait_all_tasks_blocked()
            assert clock.keys == [0.0, 0.001]
        assert clock.keys == [0.001]

    trio.run(main, clock=clock)
    assert _run._MAX_TIMEOUT == LONGEST_SLEEP_S


def test_fact_10_a_task_kept_out_of_the_run_queue_waits() -> None:
    steps: list[str] = []
    kept: list[trio.lowlevel.Task] = []

    async def worker(name: str) -> None:
        while True:
            steps.append(name)
            await trio.lowlevel.checkpoint()

    def keep_back(task: trio.lowlevel.Task) -> bool:
        if task.name == "slow":
            kept.append(task)
            return True
        return False

    async def some_passes() -> None:
        for _ in range(5):
            await trio.lowlevel.checkpoint()

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(worker, "slow", name="slow")
            assert trio.lowlevel.current_statistics().tasks_runnable == 1
            filter_run_queue(keep_back)
            assert trio.lowlevel.current_statistics().tasks_runnable == 0
            nursery.start_soon(worker, "fast", name="fast")
            await some_passes()
            assert set(steps) == {"fast"}
            assert len(kept) == 1
            filter_run_queue(None)
            extend_run_queue(kept)
            await some_passes()
            assert set(steps) == {"slow", "fast"}
            nursery.cancel_scope.cancel()

    trio.run(main)


# --- what is refused --------------------------------------------------------------------------------------------------


def run_on_a_node(program: Callable[[Node], Awaitable[None]], *, packages: tuple[str, ...] = HERE) -> None:
    async def main(world: World) -> None:
        node = world.node("a")
        node.boot(program)
        await node.wait_down()

    World(1, guard_packages=packages).run(main)


THIS_FILE = Path(__file__)
REAL_CALLS: dict[str, Callable[[], object]] = {
    "time.time()": lambda: time.time() + 0,
    "time.time_ns()": lambda: time.time_ns() + 0,
    "time.monotonic()": lambda: time.monotonic() + 0,
    "time.perf_counter()": lambda: time.perf_counter() + 0,
    "time.sleep()": lambda: time.sleep(0),
    "os.urandom()": lambda: os.urandom(1),
    "uuid.uuid4()": lambda: str(uuid.uuid4()),
    "secrets.token_bytes()": lambda: secrets.token_bytes(1),
    "random.random()": lambda: random.random() + 0,
    "random.shuffle()": lambda: random.shuffle([1, 2]),
    "opening a real file": lambda: open(THIS_FILE),  # noqa: PTH123, SIM115
    "opening a real file ": lambda: THIS_FILE.read_text(encoding="utf-8"),
    "opening a real file  ": lambda: io.open_code(str(THIS_FILE)),  # noqa: SIM115
    "opening a real file   ": lambda: os.open(THIS_FILE, os.O_RDONLY),
    "listing a real directory": lambda: os.listdir("."),  # noqa: PTH208
    "removing a real file": lambda: Path("no such file").unlink(missing_ok=True),
    "making a real socket": lambda: socket.socket(socket.AF_INET),
    "looking up a real name": lambda: socket.create_connection(("127.0.0.1", 1)),
    "starting a thread": lambda: threading.Thread(target=lambda: None).start(),
    "starting a process": lambda: subprocess.run(["true"], check=False),
    "starting a process ": lambda: os.system("true"),
}


@pytest.mark.parametrize("what", REAL_CALLS)
def test_a_real_call_is_refused_even_where_errors_are_hidden(what: str) -> None:
    hidden: list[str] = []

    async def program(node: Node) -> None:
        await trio.sleep(1)
        with pytest.raises(Tripwire), suppress(Exception):
            REAL_CALLS[what]()
        hidden.append(what)
        await trio.sleep(1)

    with pytest.raises(ForbiddenCall) as info:
        run_on_a_node(program)
    assert what.strip() in str(info.value)
    assert f' (file "{__file__}", line ' in str(info.value)
    assert "; instead, " in str(info.value)
    assert hidden == [what]


ASYNC_CALLS: dict[str, Callable[[], Awaitable[object]]] = {
    "a worker thread for": lambda: trio.to_thread.run_sync(len, ""),
    "a worker thread for ": lambda: trio.open_file(THIS_FILE),
    "a worker thread for  ": lambda: trio.Path(THIS_FILE).exists(),
    "waiting for the real descriptor 0 to become readable": lambda: trio.lowlevel.wait_readable(0),
    "waiting for the real descriptor 1 to become writable": lambda: trio.lowlevel.wait_writable(1),
}


@pytest.mark.parametrize("what", ASYNC_CALLS)
def test_threads_and_real_descriptors_are_refused_to_everybody(what: str) -> None:
    async def program(node: Node) -> None:
        await ASYNC_CALLS[what]()

    with pytest.raises(ForbiddenCall, match=what.strip()):
        run_on_a_node(program, packages=())


@pytest.mark.parametrize("what", [*ASYNC_CALLS, "through partial"])
def test_a_refusal_names_file_line_and_remedy(what: str) -> None:
    async def program(node: Node) -> None:
        if what == "through partial":
            await trio.to_thread.run_sync(functools.partial(len, ""))
        await ASYNC_CALLS[what]()

    with pytest.raises(ForbiddenCall) as raised:
        run_on_a_node(program, packages=())
    text = str(raised.value)
    line = program.__code__.co_firstlineno + (2 if what == "through partial" else 3)
    assert re.search(
        rf'in {re.escape(program.__qualname__)} \(file "{re.escape(__file__)}", line {line}\); instead, \w', text
    )
    assert "None" not in text


def test_every_refusal_has_a_remedy_of_its_own() -> None:
    for what in (*REAL_CALLS, *ASYNC_CALLS):
        assert remedy(what.strip()) != remedy("something unheard of"), what
    assert all(remedy(what) != remedy("something unheard of") for what in guard._AUDITED.values())


def test_an_idle_worker_thread_is_no_way_out() -> None:
    trio.run(trio.to_thread.run_sync, len, "")

    async def program(node: Node) -> None:
        await trio.to_thread.run_sync(len, "")

    with pytest.raises(ForbiddenCall, match="a worker thread for"):
        run_on_a_node(program, packages=())


@dataclasses.dataclass
class Record:
    name: str = "x"


def test_clean_programs_are_not_accused(caplog: pytest.LogCaptureFixture) -> None:
    async def program(node: Node) -> None:
        assert importlib.import_module("colorsys").rgb_to_hsv(0, 0, 0)  # not imported before: opens files
        assert Record("y") == dataclasses.replace(Record(), name="y")
        logging.getLogger("simulated").warning("at %s", trio.current_time())
        linecache.checkcache()
        assert "LookupError: x" in traceback.format_exception(LookupError("x"))[-1]
        assert "run_on_a_node" in traceback.format_stack(limit=3)[0] or traceback.format_stack()
        assert random.Random(7).random() == random.Random(7).random()
        assert time.strftime("%Y", time.gmtime(0)) == "1970"
        assert io.BytesIO(b"x").read() == b"x"

    sys.modules.pop("colorsys", None)
    run_on_a_node(program)
    assert caplog.records[0].created == WorldConfig().epoch_ms / 1000


def test_packages_are_told_apart_from_those_with_longer_names() -> None:
    async def program(node: Node) -> None:
        assert time.time() > 0

    run_on_a_node(program, packages=(__name__[:-1],))
    with pytest.raises(ForbiddenCall):
        run_on_a_node(program, packages=(__name__.partition(".")[0],))


def test_threads_begun_before_the_run_do_as_they_like() -> None:
    go, done = threading.Event(), threading.Event()
    seen: list[object] = []

    def use_the_real_world() -> None:
        go.wait()
        try:
            seen.extend([time.time(), THIS_FILE.exists(), uuid.uuid4()])
        except Tripwire:
            seen.append("refused")
        done.set()

    async def program(node: Node) -> None:
        go.set()
        done.wait()

    thread = threading.Thread(target=use_the_real_world)
    thread.start()
    run_on_a_node(program)
    thread.join()
    assert len(seen) == 3


def test_names_that_come_later_are_found_too_and_put_back(monkeypatch: pytest.MonkeyPatch) -> None:
    async def program(node: Node) -> None:
        globals()["later"]()

    async def nothing(node: Node) -> None: ...

    run_on_a_node(nothing)
    monkeypatch.setitem(globals(), "later", uuid.uuid4)
    with pytest.raises(ForbiddenCall, match=r"uuid\.uuid4\(\)"):
        run_on_a_node(program)
    assert globals()["later"] is uuid.uuid4


def test_what_was_imported_during_a_run_works_afterwards() -> None:
    names: dict[str, Callable[[], float]] = {}

    async def program(node: Node) -> None:
        exec("from time import time", names)

    run_on_a_node(program)
    assert names["time"]() > 0


@pytest.mark.skipif(not any((Path(path) / "UTC").exists() for path in zoneinfo.TZPATH), reason="no time zones here")
def test_time_zones_are_no_files_of_the_program() -> None:
    """`zoneinfo` opens them from C, so the program looks like the caller."""
    zones: list[str] = []

    async def program(node: Node) -> None:
        zones.append(str(zoneinfo.ZoneInfo.no_cache("UTC")))

    run_on_a_node(program)
    assert zones == ["UTC"]


def test_the_guard_sleeps_between_runs() -> None:
    test_packages_are_told_apart_from_those_with_longer_names()
    assert time.time() > 0
    assert THIS_FILE.read_text()
    assert not hasattr(time.time, "__wrapped__")


def test_a_world_within_a_world_is_refused() -> None:
    async def program(node: Node) -> None:
        async def inner(world: World) -> None: ...

        World(2).run(inner)

    with pytest.raises(NodeFailed, match="another world is running"):
        run_on_a_node(program, packages=())
