"""A store directory goes from this project to a real RocketMQ 4.9.7 and back, after orderly stops and after kills."""

from __future__ import annotations

import contextlib
import itertools
import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal

import attrs
import pytest
import trio

from rmq_actors.real_io.os_disk import OsDisk
from rmq_actors.store.check.check_store import check_store
from rmq_actors.store.config import MessageStoreConfig
from rmq_actors.store.files.store_checkpoint import read_checkpoint
from tests.interop.conftest import MakeJavaBroker
from tests.interop.store_contents import Contents, Log, contents_of_java, open_here
from tests.interop.store_workload import BATCH_SIZE, DONE, TOPIC, TOPICS, Stored, Workload, put_into_java
from tests.worlds.java_broker import MAPPED_FILE_SIZE, REPLICATION_TIMEOUT_S, JavaBroker, remove_empty_files
from tests.worlds.java_client import JavaClient
from tests.worlds.server_process import wait_until

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]

CHILD_TIMEOUT_S = 240.0
COUNT = 130

End = Literal["stop", "kill"]


@attrs.frozen
class Settings:
    """The sizes of files, in our configuration and in Java's; how big a big body is."""

    ours: Mapping[str, int]
    java: Mapping[str, int]
    big_body_bytes: int

    @property
    def config(self) -> MessageStoreConfig:
        return MessageStoreConfig(**self.ours)  # type: ignore[arg-type]


def settings(*, commit_log: int, consume_queue: int, slots: int, index: int, big_body_bytes: int) -> Settings:
    return Settings(
        {
            "mapped_file_size_commit_log_bytes": commit_log,
            "mapped_file_size_consume_queue_bytes": consume_queue,
            "max_hash_slot_num": slots,
            "max_index_num": index,
            # The checkpoint moves often, so that a kill finds it somewhere in the middle.
            "flush_interval_commit_log_ms": 10,
            "flush_consume_queue_thorough_interval_ms": 20,
        },
        {
            "mappedFileSizeCommitLog": commit_log,
            "mappedFileSizeConsumeQueue": consume_queue,
            "maxHashSlotNum": slots,
            "maxIndexNum": index,
        },
        big_body_bytes,
    )


#: Those of the golden stores: every kind of file rolls.
GOLDEN = settings(commit_log=262_144, consume_queue=2_000, slots=500, index=2_000, big_body_bytes=100_000)
DEFAULTS = settings(
    commit_log=1024**3, consume_queue=6_000_000, slots=5_000_000, index=20_000_000, big_body_bytes=3_000_000
)


@attrs.define(eq=False)
class OurStore:
    """A process that has a store open. `acknowledged`: what it said that it has put."""

    _process: subprocess.Popen[str]
    acknowledged: list[Stored] = attrs.field(factory=list)

    @classmethod
    @contextlib.contextmanager
    def open(cls, store: Path, settings: Settings, *, clock_step_ms: int = 0) -> Iterator[OurStore]:
        """With `clock_step_ms`, its wall clock goes on by that at each look."""
        arguments = [str(store), json.dumps(dict(settings.ours)), str(clock_step_ms)]
        command = [sys.executable, "-m", "tests.interop.store_workload", *arguments]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
            try:
                yield cls(process)
            finally:
                process.kill()

    def put(self, workload: Workload) -> None:
        """Put a workload; all of it is acknowledged."""
        self._order(workload)
        assert self._read(workload.count * BATCH_SIZE), "the process ended"

    def put_and_kill(self, workload: Workload) -> None:
        """Put a workload and kill the process in the middle of it."""
        self._order(workload)
        assert not self._read(workload.count // 2), "the kill comes too late"
        self._process.kill()
        self._read(workload.count * BATCH_SIZE)  # what it said before

    def stop(self) -> None:
        """Let it stop in order."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        assert self._process.wait(CHILD_TIMEOUT_S) == 0

    def _order(self, workload: Workload) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(attrs.astuple(workload)) + "\n")
        self._process.stdin.flush()

    def _read(self, lines_max: int) -> bool:
        """Read so many lines, or up to the workload's end: whether it was reached. A kill may leave a part of one."""
        assert self._process.stdout is not None
        for line in itertools.islice(self._process.stdout, lines_max + 1):
            if line == DONE:
                return True
            if line.endswith("]\n"):
                self.acknowledged.append(Stored(*json.loads(line)))
        return False


def write_here(store: Path, workload: Workload, settings: Settings, end: End) -> list[Stored]:
    """Put a workload into our store in a process of its own; what it acknowledged."""
    with OurStore.open(store, settings) as ours:
        if end == "stop":
            ours.put(workload)
            ours.stop()
        else:
            ours.put_and_kill(workload)
            remove_empty_files(store)
        return ours.acknowledged


def recovery_point(store: Path) -> int:
    """Up to where the checkpoint says that everything is durable."""
    point = read_checkpoint(OsDisk(store)).recovery_point
    return point.offset if point is not None else 0


def check_has_all(log: Log, acknowledged: list[Stored], big_body_bytes: int) -> None:
    """Each message that was acknowledged is in the log, where it was said to be, as it was put."""
    assert acknowledged
    records = {record.physical_offset: record for record in log.records}
    for stored in acknowledged:
        put = Workload(0, 0, big_body_bytes).puts(stored.number)[stored.item]
        record = records[stored.physical_offset]
        assert (record.topic, record.queue_offset, record.body) == (put.stored_topic, stored.queue_offset, put.body)
        assert put.properties.items() <= record.properties.items()


def check(store: Path, end: End) -> None:
    """Our own check of the directory: nothing is wrong, but for what a kill leaves and the next start mends."""
    allowed = {"note"} if end == "stop" else {"note", "recoverable"}
    assert [str(finding) for finding in check_store(OsDisk(store)) if finding.severity not in allowed] == []


def find_all_here(store: Path, settings: Settings) -> Log:
    """Open the store here and find everything in it; it is stopped in order. Returns its log."""
    contents = trio.run(open_here, store, settings.config)
    log = Log.read(store)
    assert list(contents.misses(log)) == []
    return log


def find_all(client: JavaClient, store: Path) -> Log:
    """Find everything in the broker's store."""
    log = Log.read(store)
    contents: Contents = contents_of_java(client, log)
    assert list(contents.misses(log)) == []
    return log


def end_java(broker: JavaBroker, end: End) -> None:
    if end == "stop":
        broker.stop()
        assert broker.stopped_in_order()
    else:
        broker.kill()


def wait_until_dispatched(broker: JavaBroker, client: JavaClient) -> None:
    def all_are_in_queues() -> bool:
        queues = Log.read(broker.store).queues
        return all(client.max_offset(*name) == queue.max_offset for name, queue in queues.items())

    broker.wait_until(all_are_in_queues, REPLICATION_TIMEOUT_S, "everything is in its queue")


@pytest.mark.parametrize("settings", [GOLDEN, DEFAULTS], ids=["golden", "defaults"])
def test_java_finds_all_that_was_written_here_and_goes_on(make_java_broker: MakeJavaBroker, settings: Settings) -> None:
    broker = make_java_broker("broker", **settings.java)
    broker.declare_topics(TOPICS)
    store, big = broker.store, settings.big_body_bytes

    acknowledged = write_here(store, Workload(0, COUNT, big), settings, "stop")
    check(store, "stop")
    broker.start()
    with JavaClient.connect(broker.listen_port) as client:
        check_has_all(find_all(client, store), acknowledged, big)
        acknowledged += put_into_java(client, Workload(COUNT, COUNT, big))
    end_java(broker, "stop")
    check(store, "stop")

    acknowledged += write_here(store, Workload(2 * COUNT, COUNT, big), settings, "kill")
    check(store, "kill")
    broker.start()
    with JavaClient.connect(broker.listen_port) as client:
        check_has_all(find_all(client, store), acknowledged, big)
        acknowledged += put_into_java(client, Workload(3 * COUNT, COUNT, big))
    end_java(broker, "kill")
    check(store, "kill")
    check_has_all(find_all_here(store, settings), acknowledged, big)
    check(store, "stop")
    if settings is GOLDEN:
        for directory in ("commitlog", f"consumequeue/{TOPIC}/0", "index"):
            assert len(list((store / directory).iterdir())) > 1, f"nothing has rolled in {directory}"


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_all_that_java_wrote_is_found_here_and_continued(make_java_broker: MakeJavaBroker, end: End) -> None:
    broker = make_java_broker("broker", **GOLDEN.java)
    broker.declare_topics(TOPICS)
    store, big = broker.store, GOLDEN.big_body_bytes

    broker.start()
    with JavaClient.connect(broker.listen_port) as client:
        acknowledged = put_into_java(client, Workload(0, COUNT, big))
        client.put_in_transaction(TOPIC, b"committed", {"UNIQ_KEY": "committed"}, commit=True)
        client.put_in_transaction(TOPIC, b"rolled back", {"UNIQ_KEY": "rolled back"}, commit=False)
        wait_until_dispatched(broker, client)
    end_java(broker, end)
    check(store, end)
    log = find_all_here(store, GOLDEN)
    check_has_all(log, acknowledged, big)
    assert {b"committed", b"rolled back"} <= {record.body for record in log.records}
    check(store, "stop")

    acknowledged += write_here(store, Workload(COUNT, COUNT, big), GOLDEN, "stop")
    check(store, "stop")
    check_has_all(find_all_here(store, GOLDEN), acknowledged, big)
    broker.start()
    with JavaClient.connect(broker.listen_port) as client:
        check_has_all(find_all(client, store), acknowledged, big)


def test_java_finds_all_keys_of_a_store_killed_after_an_hour(make_java_broker: MakeJavaBroker) -> None:
    """After a crash it drops the newest index file, and reads again only what is newer than the checkpoint says."""
    broker = make_java_broker("broker", **{**GOLDEN.java, "maxIndexNum": 50_000})
    broker.declare_topics(TOPICS)
    # One index file for all, and no second checkpoint soon after the one that is waited for.
    own = {"max_index_num": 50_000, "flush_consume_queue_thorough_interval_ms": 1_000}
    settings, big = attrs.evolve(GOLDEN, ours={**GOLDEN.ours, **own}), GOLDEN.big_body_bytes

    with OurStore.open(broker.store, settings, clock_step_ms=2_000) as ours:
        ours.put(Workload(0, 3 * COUNT, big))
        wait_until(lambda: recovery_point(broker.store) > 2 * MAPPED_FILE_SIZE, CHILD_TIMEOUT_S, "a checkpoint")
        ours.put_and_kill(Workload(3 * COUNT, COUNT, big))
    broker.start()
    with JavaClient.connect(broker.listen_port) as client:
        check_has_all(find_all(client, broker.store), ours.acknowledged, big)
