"""Fixtures that start real RocketMQ brokers; they skip, naming what is missing, where Java 17 or Maven is not there."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import attrs
import pytest

import rmq_actors.testing
from rmq_actors.embedding.cluster import real_recorder
from rmq_actors.tracing.event import RunInfo
from rmq_actors.tracing.recorder import Tracer
from tests.interop.java_broker import JavaBroker
from tests.interop.java_tools import ToolMissing, java_command, rocketmq_classpath

#: `make_java_broker(name, **properties)`
MakeJavaBroker = Callable[..., JavaBroker]
#: `java_slave(master_ha_address, mapped_file_size)`
MakeJavaSlave = Callable[[str, int], JavaBroker]
#: `make_tracer(node)`
MakeTracer = Callable[[str], Tracer]

#: The store that a real master left after an orderly stop: 215 messages in two files.
GOLDEN_STORE = Path(rmq_actors.testing.__file__).parent / "golden" / "store_master_clean"
GOLDEN_END = 380417
GOLDEN_MESSAGES = 215


@attrs.frozen
class JavaRuntime:
    """What it takes to start a broker."""

    java: str
    classpath: str


@pytest.fixture(scope="session")
def java_runtime() -> JavaRuntime:
    try:
        return JavaRuntime(java_command(), rocketmq_classpath())
    except ToolMissing as missing:
        pytest.skip(str(missing))


@pytest.fixture
def make_java_broker(java_runtime: JavaRuntime, tmp_path: Path) -> Iterator[MakeJavaBroker]:
    """Makes a broker, not started yet. What still runs at the end of the test is killed."""
    brokers: list[JavaBroker] = []

    def make(name: str, **properties: str | int) -> JavaBroker:
        directory = tmp_path / name
        directory.mkdir()
        brokers.append(JavaBroker(directory, java_runtime.java, java_runtime.classpath, properties))
        return brokers[-1]

    yield make
    for broker in brokers:
        broker.kill()


@pytest.fixture
def java_slave(make_java_broker: MakeJavaBroker) -> MakeJavaSlave:
    """Makes a slave of the master at an HA address, with the master's commit-log file size in bytes."""

    def make(master_ha_address: str, mapped_file_size: int) -> JavaBroker:
        return make_java_broker(
            "slave",
            brokerId=1,
            brokerRole="SLAVE",
            haMasterAddress=master_ha_address,
            mappedFileSizeCommitLog=mapped_file_size,
        )

    return make


@pytest.fixture
def make_tracer(request: pytest.FixtureRequest) -> MakeTracer:
    """Makes tracers that check every event and keep none."""
    return real_recorder(RunInfo("interop", request.node.name, 0, source="broker")).tracer
