"""Fixtures that start real RocketMQ servers; they skip, naming what is missing, where Java 17 or Maven is not there."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import trustme
from cryptography.hazmat.primitives import serialization

import rmq_actors.testing
from rmq_actors.embedding.real_recorder import real_recorder
from rmq_actors.tracing.event import RunInfo
from rmq_actors.tracing.recorder import Tracer
from tests.interop.java_gateway import JavaGateway, open_java_gateway
from tests.interop.servers import Servers
from tests.interop.two_name_servers import TwoNameServers, start_two
from tests.worlds.java_broker import JavaBroker
from tests.worlds.java_process import JavaRuntime
from tests.worlds.java_tools import POM, POM_5, ToolMissing, java_command, rocketmq_classpath
from tests.worlds.server_process import write_properties

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


def _runtime(pom: Path) -> JavaRuntime:
    try:
        return JavaRuntime(java_command(), rocketmq_classpath(pom))
    except ToolMissing as missing:
        pytest.skip(str(missing))


@pytest.fixture(scope="session")
def java_runtime() -> JavaRuntime:
    """RocketMQ 4.9.7."""
    return _runtime(POM)


@pytest.fixture(scope="session")
def java_runtime_5() -> JavaRuntime:
    """RocketMQ 5.3.1."""
    return _runtime(POM_5)


@pytest.fixture(scope="session")
def java_gateway(java_runtime: JavaRuntime, tmp_path_factory: pytest.TempPathFactory) -> Iterator[JavaGateway]:
    """Java's own mqadmin, producers and consumers: one process for all tests."""
    with open_java_gateway(tmp_path_factory.mktemp("java-gateway"), java_runtime) as gateway:
        yield gateway


@pytest.fixture
def servers(java_runtime: JavaRuntime, tmp_path: Path) -> Iterator[Servers]:
    """Makes servers for one test."""
    with contextlib.closing(Servers(tmp_path, java_runtime)) as servers:
        yield servers


@pytest.fixture(scope="module")
def module_servers(java_runtime: JavaRuntime, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    """Makes servers that the tests of a module share."""
    with contextlib.closing(Servers(tmp_path_factory.mktemp("servers"), java_runtime)) as servers:
        yield servers


@pytest.fixture(scope="module")
def two(module_servers: Servers) -> TwoNameServers:
    """RocketMQ's name server and this project's, for the tests of a module."""
    return start_two(module_servers)


@pytest.fixture(scope="session")
def tls_config_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """tls.properties for servers and clients, of either side: everybody shows a certificate, and checks the other's."""
    directory = tmp_path_factory.mktemp("tls")
    authority = trustme.CA()
    authority.cert_pem.write_to_path(directory / "ca.pem")
    for side in ("server", "client"):
        certificate = authority.issue_cert("127.0.0.1", common_name=side)
        (directory / f"{side}.pem").write_bytes(b"".join(blob.bytes() for blob in certificate.cert_chain_pems))
        key = serialization.load_pem_private_key(certificate.private_key_pem.bytes(), None)
        # The only form that Java reads.
        pkcs8 = serialization.PrivateFormat.PKCS8
        (directory / f"{side}.key").write_bytes(
            key.private_bytes(serialization.Encoding.PEM, pkcs8, serialization.NoEncryption())
        )
    properties = {
        "tls.test.mode.enable": "false",
        "tls.server.need.client.auth": "require",
        "tls.server.authClient": "true",
        "tls.client.authServer": "true",
    }
    for side in ("server", "client"):
        properties |= {
            f"tls.{side}.keyPath": str(directory / f"{side}.key"),
            f"tls.{side}.certPath": str(directory / f"{side}.pem"),
            f"tls.{side}.trustCertPath": str(directory / "ca.pem"),
        }
    write_properties(directory / "tls.properties", properties)
    return directory / "tls.properties"


@pytest.fixture
def make_java_broker(servers: Servers) -> MakeJavaBroker:
    """Makes a broker, not started yet. What still runs at the end of the test is killed."""
    return servers.java_broker


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
