"""TLS between master and slave on loopback sockets: they replicate and change their roles; all others are refused."""

from __future__ import annotations

import contextlib
import logging
import re
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio
import trio.testing

from rmq_actors.broker.broker_controller import BrokerController, open_broker
from rmq_actors.broker.config import BrokerConfig
from rmq_actors.embedding.cluster import log_sha256
from rmq_actors.ha.config import HaConfig
from rmq_actors.protocols.metadata_rounds import FIRST_AFTER_S
from rmq_actors.protocols.put_completion import PutStatus
from rmq_actors.real_io.environment import real_environment
from rmq_actors.remoting.config import RemotingServerConfig
from rmq_actors.remoting.tls import Tls, TlsConfig, TlsConfigError, TlsMode
from rmq_actors.store.config import BrokerRole, MessageStoreConfig
from rmq_actors.wire.address import parse_address
from rmq_actors.wire.bodies.topic_configs import TopicConfig
from rmq_actors.wire.ha_frames import encode_report
from rmq_actors.wire.record import Message
from tests.worlds.recording import Watch, new_recorder
from tests.worlds.tls_certificates import certificates

TLS_HELLO = bytes.fromhex("1603010200")


def broker_tls(authority: str = "ours", *, trusts: str | None = "ours", **settings: Any) -> Tls:
    """A broker with certificates of one authority, that trusts those of another, or whoever it is."""
    own = certificates(authority, "a-broker")
    trust = "" if trusts is None else certificates(trusts).trust
    config = TlsConfig(
        server_key_path=own.key,
        server_cert_path=own.cert,
        server_trust_cert_path=trust,
        client_key_path=own.key,
        client_cert_path=own.cert,
        client_trust_cert_path=trust,
        **settings,
    )
    return Tls.from_config(config, ha=True)


@attrs.define(eq=False)
class Node:
    """A broker and what it recorded."""

    broker: BrokerController
    watch: Watch

    @property
    def address(self) -> tuple[str, int]:
        return parse_address(self.broker.ha_address)

    @property
    def sha256(self) -> str:
        return log_sha256(self.broker.store.commit_log)

    async def put(self, body: bytes = b"body") -> PutStatus:
        return (await self.broker.put_message(Message("TopicTest", body))).status

    async def reaches(self, other: Node) -> None:
        with trio.fail_after(60), self.broker.store.log_end.subscribe() as growth:
            while self.broker.store.commit_log.max_offset < other.broker.store.commit_log.max_offset:
                await growth.receive()

    async def closed(self, status: str) -> None:
        kinds = {"ha.connection.close", "ha.client.close"}
        await self.watch.until(lambda event: event.kind in kinds and event.status == status)

    async def refused(self, times: int = 1) -> None:
        with trio.fail_after(60):
            while self.broker.ha_service.counters().refused_connections < times:
                await trio.sleep(0.01)


@contextlib.asynccontextmanager
async def running(
    root: Path, role: BrokerRole, tls: Tls | None, master: str | None = None, **ha: Any
) -> AsyncIterator[Node]:
    """A broker below `root`, a slave of the one at `master`."""
    recorder = new_recorder()
    settings = {"ha_listen_port": 0, "reconnect_pause_min_ms": 5, "reconnect_pause_max_ms": 20, **ha}
    config = BrokerConfig(
        "broker-a",
        MessageStoreConfig(broker_role=role, mapped_file_size_commit_log_bytes=8 * 1024 * 1024),
        HaConfig(ha_master_address=master, ha_tls_enable=tls is not None, **settings),
    )
    async with open_broker(config, real_environment(root), recorder.tracer(root.name), tls=tls) as broker:
        yield Node(broker, Watch(recorder))


@contextlib.asynccontextmanager
async def listening_to(master: Node, heard: bytearray) -> AsyncIterator[str]:
    """An address between a slave and its master; `heard` has all that passes."""

    async def serve(client: trio.SocketStream) -> None:
        server = await trio.open_tcp_stream(*master.address)
        async with client, server, trio.open_nursery() as nursery:
            nursery.start_soon(pipe, client, server)
            nursery.start_soon(pipe, server, client)

    async def pipe(source: trio.SocketStream, target: trio.SocketStream) -> None:
        with contextlib.suppress(trio.BrokenResourceError, trio.ClosedResourceError):
            async for data in source:
                heard.extend(data)
                await target.send_all(data)
            await target.send_eof()

    async with trio.open_nursery() as nursery:
        (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
        nursery.start_soon(trio.serve_listeners, serve, [listener])
        yield f"127.0.0.1:{listener.socket.getsockname()[1]}"
        nursery.cancel_scope.cancel()


async def until_closed(stream: trio.SocketStream) -> None:
    with trio.fail_after(60), contextlib.suppress(trio.BrokenResourceError):
        while await stream.receive_some():
            pass


@pytest.mark.trio
async def test_a_slave_follows_over_tls_and_nobody_between_reads_the_log(tmp_path: Path) -> None:
    heard = bytearray()
    async with running(tmp_path / "master", BrokerRole.SYNC_MASTER, broker_tls()) as master:
        for _ in range(4):
            await master.put(b"what nobody else may read" + bytes(1_000_000))
        async with (
            listening_to(master, heard) as between,
            running(tmp_path / "slave", BrokerRole.SLAVE, broker_tls(), between) as slave,
        ):
            await slave.reaches(master)
            assert slave.broker.store.receiving.busy_until > 0  # it receives first, and dispatches then
            statuses: list[PutStatus] = []

            async def put_many() -> None:
                statuses.extend([await master.put(bytes(3000)) for _ in range(50)])

            async with trio.open_nursery() as nursery:
                for _ in range(4):
                    nursery.start_soon(put_many)
            assert statuses == [PutStatus.PUT_OK] * 200
            assert slave.sha256 == master.sha256
            assert len(master.broker.ha_service.connections) == 1
    assert len(heard) > 4_600_000
    assert b"what nobody else may read" not in heard


@pytest.mark.trio
async def test_a_pair_over_tls_exchanges_its_roles(tmp_path: Path) -> None:
    tls = broker_tls()
    async with running(tmp_path / "b", BrokerRole.SLAVE, tls, "127.0.0.1:1") as second:
        async with running(tmp_path / "a", BrokerRole.SYNC_MASTER, tls) as first:
            await second.broker.change_role(BrokerRole.SLAVE, ha_master_address=first.broker.ha_address)
            await first.broker.store.wait_for_slaves(1)
            assert await first.put() is PutStatus.PUT_OK
        await second.broker.change_role(BrokerRole.SYNC_MASTER)
        async with running(tmp_path / "a", BrokerRole.SLAVE, tls, second.broker.ha_address) as first:
            await second.broker.store.wait_for_slaves(1)
            assert await second.put(b"after the fail-over") is PutStatus.PUT_OK
            await first.reaches(second)
            assert first.sha256 == second.sha256


@pytest.mark.trio
async def test_a_slave_with_a_certificate_of_another_authority_is_refused(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It is not asked to trust its master less: both sides look."""
    async with running(tmp_path / "master", BrokerRole.SYNC_MASTER, broker_tls()) as master:
        await master.put()
        foreign = broker_tls("others", trusts="ours")
        async with running(tmp_path / "slave", BrokerRole.SLAVE, foreign, master.broker.ha_address) as slave:
            await master.refused()
            assert slave.broker.store.commit_log.max_offset == 0
        counters = master.broker.ha_service.counters()
        assert (counters.connections, counters.sent_bytes) == (0, 0)
    assert re.search(r"slave 127\.0\.0\.1:\d+ refused: no TLS handshake: .*certificate verify failed", caplog.text)


@pytest.mark.trio
async def test_a_slave_without_a_certificate_is_refused(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    ours = certificates("ours", "a-broker")
    config = TlsConfig(server_key_path=ours.key, server_cert_path=ours.cert, client_trust_cert_path=ours.trust)
    without = Tls.from_config(config, ha=True)
    async with (
        running(tmp_path / "master", BrokerRole.SYNC_MASTER, broker_tls()) as master,
        running(tmp_path / "slave", BrokerRole.SLAVE, without, master.broker.ha_address),
    ):
        await master.refused()
    assert "peer did not return a certificate" in caplog.text


@pytest.mark.trio
async def test_a_slave_does_not_take_a_master_of_another_authority(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with running(tmp_path / "master", BrokerRole.SYNC_MASTER, broker_tls("others", trusts=None)) as master:
        await master.put()
        async with running(tmp_path / "slave", BrokerRole.SLAVE, broker_tls(), master.broker.ha_address) as slave:
            await slave.closed("tls_handshake")
            assert slave.broker.store.commit_log.max_offset == 0
    told = f"master 127.0.0.1:{master.address[1]}: tls_handshake: no TLS handshake: "
    (line,) = [line for line in caplog.text.splitlines() if told in line]
    assert "certificate verify failed" in line
    assert "haTlsEnable" not in line


@pytest.mark.trio
async def test_without_an_authority_everybody_who_speaks_tls_is_believed_and_the_log_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    tls = broker_tls("others", trusts=None)
    assert "haTlsEnable=true without tls.server.trustCertPath: whoever speaks TLS may be a slave" in caplog.text
    async with (
        running(tmp_path / "master", BrokerRole.SYNC_MASTER, tls) as master,
        running(tmp_path / "slave", BrokerRole.SLAVE, broker_tls(trusts=None), master.broker.ha_address),
    ):
        await master.broker.store.wait_for_slaves(1)
        assert await master.put() is PutStatus.PUT_OK


@pytest.mark.trio
async def test_a_slave_in_plain_text_is_refused_and_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Java's slaves can be nothing else."""
    async with running(tmp_path / "master", BrokerRole.SYNC_MASTER, broker_tls()) as master:
        await master.put()
        async with await trio.open_tcp_stream(*master.address) as peer:
            await peer.send_all(encode_report(0))
            await until_closed(peer)
        assert master.broker.ha_service.counters().connections == 0
        assert master.broker.ha_service.counters().refused_connections == 1
    assert re.search(r"slave 127\.0\.0\.1:\d+ refused: plain text, where haTlsEnable=true asks for TLS", caplog.text)


@pytest.mark.trio
async def test_a_slave_says_that_its_master_may_speak_plain_text_and_the_master_says_what_came(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with running(tmp_path / "master", BrokerRole.SYNC_MASTER, None) as master:
        await master.put()
        async with running(tmp_path / "slave", BrokerRole.SLAVE, broker_tls(), master.broker.ha_address) as slave:
            await slave.closed("tls_handshake")
            await master.closed("slave_ahead")
            assert slave.broker.store.commit_log.max_offset == 0
    assert "is haTlsEnable=true at the master, too? This slave has it" in caplog.text
    assert "it speaks TLS, and this master has not haTlsEnable=true" in caplog.text


@pytest.mark.trio
@pytest.mark.parametrize("begin", [b"", TLS_HELLO], ids=["silent", "half a hello"])
async def test_a_handshake_that_never_ends_holds_no_place_of_a_slave_and_is_cut_off(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, mock_clock: trio.testing.MockClock, begin: bytes
) -> None:
    tls = broker_tls(handshake_timeout_ms=400)
    async with (
        running(tmp_path / "master", BrokerRole.SYNC_MASTER, tls, connections_max=1) as master,
        contextlib.AsyncExitStack() as peers,
    ):
        streams = []
        for _ in range(5):
            streams.append(await peers.enter_async_context(await trio.open_tcp_stream(*master.address)))
            await streams[-1].send_all(begin)
        await trio.testing.wait_all_tasks_blocked()
        assert master.broker.ha_service.in_handshake == 5
        async with running(tmp_path / "slave", BrokerRole.SLAVE, tls, master.broker.ha_address):
            await master.broker.store.wait_for_slaves(1)
            assert await master.put() is PutStatus.PUT_OK
            mock_clock.jump(0.4)
            mock_clock.rate = 1  # `until_closed` has a time-out
            for stream in streams:
                await until_closed(stream)
            assert master.broker.ha_service.counters().connections == 1
            assert len(master.broker.ha_service.connections) == 1
    assert caplog.text.count("refused: no TLS handshake within 400 ms") == 5


@pytest.mark.trio
async def test_one_handshake_too_many_is_refused(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with (
        running(tmp_path / "master", BrokerRole.SYNC_MASTER, broker_tls(), handshakes_max=2) as master,
        contextlib.AsyncExitStack() as peers,
    ):
        for _ in range(3):
            peer = await peers.enter_async_context(await trio.open_tcp_stream(*master.address))
        await until_closed(peer)
        assert master.broker.ha_service.in_handshake == 2
        assert master.broker.ha_service.counters().refused_connections == 1
    assert "refused: 2 TLS handshakes are under way (haHandshakesMax)" in caplog.text


@pytest.mark.trio
async def test_a_peer_that_ends_before_its_handshake_is_no_slave(tmp_path: Path) -> None:
    async with running(tmp_path / "master", BrokerRole.SYNC_MASTER, broker_tls()) as master:
        async with await trio.open_tcp_stream(*master.address) as peer:
            await peer.send_eof()
            await until_closed(peer)
        assert master.broker.ha_service.counters().connections == 0
        assert await master.put() is PutStatus.SLAVE_NOT_AVAILABLE


@pytest.mark.trio
async def test_a_stop_does_not_wait_for_handshakes(tmp_path: Path) -> None:
    async with running(tmp_path / "master", BrokerRole.SYNC_MASTER, broker_tls()) as master:
        peer = await trio.open_tcp_stream(*master.address)
        await peer.send_all(TLS_HELLO)
        with trio.fail_after(60):
            while master.broker.ha_service.in_handshake == 0:
                await trio.sleep(0.01)
    await until_closed(peer)
    await peer.aclose()


def _no_certificate(_: TlsConfig) -> TlsConfig:
    return TlsConfig()


def _no_key(config: TlsConfig) -> TlsConfig:
    return attrs.evolve(config, server_key_path="")


@pytest.mark.parametrize("change", [_no_certificate, _no_key])
def test_without_a_certificate_there_is_no_tls_between_brokers(change: Callable[[TlsConfig], TlsConfig]) -> None:
    files = certificates("ours")
    config = change(TlsConfig(server_key_path=files.key, server_cert_path=files.cert))
    with pytest.raises(TlsConfigError, match=r"haTlsEnable=true needs tls.server.certPath and tls.server.keyPath"):
        Tls.from_config(config, ha=True)


@pytest.mark.trio
@pytest.mark.parametrize("tls", [None, Tls()])
async def test_a_broker_that_is_told_of_tls_and_given_none_does_not_start(tmp_path: Path, tls: Tls | None) -> None:
    config = BrokerConfig("master", MessageStoreConfig(), HaConfig(ha_listen_port=0, ha_tls_enable=True))
    with pytest.raises(TlsConfigError, match="haTlsEnable=true needs the settings of TLS"):
        async with open_broker(config, real_environment(tmp_path), new_recorder().tracer("master"), tls=tls):
            pytest.fail("it started")


@pytest.mark.trio
async def test_certificates_that_are_trusted_are_asked_for_whatever_remoting_does(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """tls.server.mode and tls.enable are of remoting: both are off here."""
    caplog.set_level(logging.WARNING)
    tls = broker_tls()
    assert (tls.server, tls.client) == (None, None)
    assert "may be a slave" not in caplog.text


@pytest.mark.trio
async def test_what_a_slave_asks_its_master_goes_over_tls_by_the_settings_of_remoting(
    tmp_path: Path, mock_clock: trio.testing.MockClock
) -> None:
    tls = broker_tls(server_mode=TlsMode.ENFORCING, enable=True)

    async def opened(stack: contextlib.AsyncExitStack, config: BrokerConfig) -> BrokerController:
        environment = real_environment(tmp_path / config.store.broker_role.value)
        tracer = new_recorder().tracer(config.store.broker_role.value)
        return await stack.enter_async_context(open_broker(config, environment, tracer, tls=tls))

    ha, remoting = HaConfig(ha_listen_port=0, ha_tls_enable=True), RemotingServerConfig("127.0.0.1", 0)
    async with contextlib.AsyncExitStack() as stack:
        store = MessageStoreConfig(broker_role=BrokerRole.SYNC_MASTER)
        master = await opened(stack, BrokerConfig("broker-a", store, ha, remoting=remoting))
        assert master.remoting is not None
        await master.remoting.topic_config_manager.update_topic_config(TopicConfig(topic_name="Known"))
        slave = await opened(
            stack,
            BrokerConfig(
                "broker-a",
                MessageStoreConfig(broker_role=BrokerRole.SLAVE),
                attrs.evolve(ha, ha_master_address=master.ha_address),
                remoting=remoting,
                broker_id=1,
                master_addr=master.remoting.broker_addr,
            ),
        )
        assert slave.remoting is not None
        await master.store.wait_for_slaves(1)
        mock_clock.jump(FIRST_AFTER_S)
        mock_clock.rate = 1
        with trio.fail_after(60):
            while slave.remoting.topic_config_manager.select_topic_config("Known") is None:
                await trio.sleep(0.05)
