"""Settings of high availability: what is out of range is named when the settings are made, not when they are used."""

from __future__ import annotations

import re

import pytest

from rmq_actors.ha.config import HaConfig
from rmq_actors.settings.configure import ConfigurationError, Properties, configure
from rmq_actors.store.config import MessageStoreConfig
from rmq_actors.wire.address import IllegalAddress, parse_address


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:10912", ("127.0.0.1", 10912)),
        ("broker-a.example:1", ("broker-a.example", 1)),
        ("[::1]:65535", ("::1", 65535)),
        ("fe80::1%eth0:1", ("fe80::1%eth0", 1)),
    ],
)
def test_addresses(text: str, address: tuple[str, int]) -> None:
    assert parse_address(text) == address


@pytest.mark.parametrize(
    "text",
    [
        "",
        "host",
        ":1",
        "host:",
        "host:0",
        "host:65536",
        "host:-1",
        "host:１",  # noqa: RUF001 - a digit, but not one of a port
        "a..b:1",
        f"{'x' * 64}:1",
        "a:1,b:2",
        "a,b:2",
        "a b:2",
        "a\0b:2",
        "☃:1",  # name lookup would raise what is no OSError
        f"fe80::1%{'x' * 64}:1",
        "[a]:2",
    ],
)
def test_what_is_no_address_is_named(text: str) -> None:
    with pytest.raises(IllegalAddress, match=f"ha_master_address: {re.escape(repr(text))}"):
        HaConfig(ha_master_address=text)


def test_an_address_of_any_length_is_refused_in_few_words() -> None:
    """What a peer sends may be as long as a header."""
    for text in (f"host:{'1' * 5000}", f"{'a.' * 400_000}a:1"):
        with pytest.raises(IllegalAddress) as caught:
            parse_address(text)
        assert len(str(caught.value)) < 500


def test_the_numbers_of_replicas_must_be_in_order() -> None:
    assert HaConfig().acks_required == 1
    assert HaConfig(total_replicas=3, in_sync_replicas=3).acks_required == 2
    assert HaConfig().acks_min is None
    assert HaConfig(enable_auto_in_sync_replicas=True).acks_min == 0
    with pytest.raises(ValueError, match="in_sync_replicas 3 and total_replicas 2 are not in this order"):
        HaConfig(in_sync_replicas=3)


@pytest.mark.parametrize(
    ("key", "text", "name", "value"),
    [
        ("haListenPort", "20912", "ha_listen_port", 20912),
        ("haMasterAddress", "10.0.0.1:10912", "ha_master_address", "10.0.0.1:10912"),
        ("haSendHeartbeatInterval", "1000", "heartbeat_interval_s", 1.0),
        ("haHousekeepingInterval", "4000", "housekeeping_interval_s", 4.0),
        ("haTransferBatchSize", "65536", "ha_transfer_batch_size_bytes", 65536),
        ("haSlaveFallbehindMax", "4294967296", "ha_slave_fallbehind_max_bytes", 1 << 32),
        ("slaveTimeout", "3000", "slave_timeout_ms", 3000),
        ("syncFlushTimeout", "5000", "sync_flush_timeout_ms", 5000),
        ("syncFromLastFile", "true", "sync_from_last_file", True),
        ("haSocketSndBufSize", "131072", "ha_socket_snd_buf_size_bytes", 131072),
        ("haSocketRcvBufSize", "131072", "ha_socket_rcv_buf_size_bytes", 131072),
        ("totalReplicas", "3", "total_replicas", 3),
        ("enableAutoInSyncReplicas", "true", "enable_auto_in_sync_replicas", True),
    ],
)
def test_replication_is_configured_by_rocketmqs_keys(key: str, text: str, name: str, value: object) -> None:
    properties = Properties("broker.conf", {key: text})
    configured = configure(HaConfig(), properties), configure(MessageStoreConfig(), properties)
    (config,) = (config for config in configured if hasattr(config, name))
    assert getattr(config, name) == value


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("haListenPort", "65536"),
        ("haMasterAddress", "10.0.0.1"),
        ("haSendHeartbeatInterval", "0"),
        ("haHousekeepingInterval", "-1"),
        ("haTransferBatchSize", "0"),
        ("haTransferBatchSize", str(1 << 31)),
        ("haSlaveFallbehindMax", "0"),
        ("haSlaveFallbehindMax", "many"),
        ("slaveTimeout", "0"),
        ("syncFlushTimeout", "0"),
        ("syncFromLastFile", "1"),
        ("haSocketSndBufSize", "-1"),
        ("haSocketRcvBufSize", str(1 << 31)),
    ],
)
def test_what_is_out_of_range_is_named_with_its_key(key: str, text: str) -> None:
    properties = Properties("broker.conf", {key: text})

    def configure_both() -> None:
        configure(HaConfig(), properties)
        configure(MessageStoreConfig(), properties)

    with pytest.raises(ConfigurationError, match=re.escape(f"broker.conf: {key}={text}")):
        configure_both()
