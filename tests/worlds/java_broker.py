"""A real RocketMQ broker in a child process, 4.9.7 or 5.3.1; its store and configuration are in its directory."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import ClassVar

import attrs

from tests.worlds.java_client import JavaClient, Response
from tests.worlds.java_process import JavaProcess
from tests.worlds.server_process import free_broker_port

REPLICATION_TIMEOUT_S = 240.0

#: Bytes of a commit-log file, unless a broker is told otherwise.
MAPPED_FILE_SIZE = 262144

#: A broker on a slow machine should not refuse what has waited for 200 ms, or after a put that took a second; nor go
#: without a name server for half a minute because that took 6 s to answer.
PATIENCE: Mapping[str, str | int] = {
    "brokerFastFailureEnable": "false",
    "osPageCacheBusyTimeOutMills": 60_000,
    "registerBrokerTimeoutMills": 60_000,
}


def remove_empty_files(store: Path) -> None:
    """Do what an operator of RocketMQ does after a kill: 4.9 refuses to start over a file without a length.

    Both systems make a file and then give it its length, and may be killed in between.
    """
    for directory in ("commitlog", "consumequeue"):
        for file in (store / directory).rglob("[0-9]" * 20):
            if not file.stat().st_size:
                file.unlink()


#: Without these, a broker deletes the older files of its log a minute after its start where the machine's disk is full.
FULL_DISK: Mapping[str, str | int] = {"diskMaxUsedSpaceRatio": 95, "cleanFileForciblyEnable": "false"}


@attrs.define(eq=False)
class JavaBroker(JavaProcess):
    """One broker. `properties` go into broker.conf, over the defaults of `default_properties`."""

    listen_port: int = attrs.field(factory=free_broker_port, kw_only=True)

    main_class: ClassVar = "org.apache.rocketmq.broker.BrokerStartup"
    kind: ClassVar = "broker"

    @property
    def store(self) -> Path:
        """The store directory (storePathRootDir)."""
        return self.directory / "store"

    @property
    def ha_address(self) -> str:
        """Where slaves connect to."""
        return f"127.0.0.1:{self.listen_port + 1}"

    def kill(self) -> None:
        """Kill it (SIGKILL), and remove what it was about to create."""
        super().kill()
        remove_empty_files(self.store)

    def stopped_in_order(self) -> bool:
        """Whether the store is clean: no process, and the `abort` file is gone."""
        return not self.runs and self.store.is_dir() and not (self.store / "abort").exists()

    def default_properties(self) -> Mapping[str, str | int]:
        """The configuration before `properties`. Without a namesrvAddr there, the broker knows no name server."""
        return {
            "brokerClusterName": "DefaultCluster",
            "brokerName": "broker-a",
            "brokerId": 0,
            "brokerRole": "ASYNC_MASTER",
            "flushDiskType": "ASYNC_FLUSH",
            "brokerIP1": "127.0.0.1",
            "brokerIP2": "127.0.0.1",
            "listenPort": self.listen_port,
            "storePathRootDir": str(self.store),
            "storePathCommitLog": str(self.store / "commitlog"),
            "mappedFileSizeCommitLog": MAPPED_FILE_SIZE,
            "mappedFileSizeConsumeQueue": 2000,
            "maxHashSlotNum": 500,
            "maxIndexNum": 2000,
            **FULL_DISK,
            # That of 5.x, which no test uses, takes seconds of a processor to stop.
            "timerWheelEnable": "false",
            **PATIENCE,
        }

    def send(self, topic: str, body: bytes, *, queue_id: int = 0, properties: str = "") -> Response:
        """Put one message by RocketMQ's own request (SEND_MESSAGE_V2) and return the response."""
        with JavaClient.connect(self.listen_port) as client:
            return client.send_message(topic, body, queue_id=queue_id, properties=properties)

    def declare_topics(self, queues: Mapping[str, int]) -> None:
        """Write topics.json: a broker lets consumers pull from no topic that is not there. Before the first start."""
        write_topics(self.store, queues)


def write_topics(store: Path, queues: Mapping[str, int]) -> None:
    """Write the topics.json of a store: topics by the number of their queues."""
    table = {
        topic: {
            "topicName": topic,
            "readQueueNums": count,
            "writeQueueNums": count,
            "perm": 6,
            "topicFilterType": "SINGLE_TAG",
            "topicSysFlag": 0,
            "order": False,
        }
        for topic, count in queues.items()
    }
    path = store / "config" / "topics.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"dataVersion": {"counter": 1, "timestamp": 0}, "topicConfigTable": table}))


def commit_log_files(store: Path) -> dict[int, bytes]:
    """Each commit-log file that holds anything, by its start offset.

    A running broker allocates the next files ahead of time: those are all zeros, and left out.
    """
    return dict(_written_files(store / "commitlog"))


def _written_files(directory: Path) -> Iterator[tuple[int, bytes]]:
    for path in sorted(directory.iterdir()) if directory.is_dir() else ():
        data = path.read_bytes()
        if data.strip(b"\0"):
            yield int(path.name), data
