"""Producers and administrators in this process, on real sockets: see `examples/produce.py`."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import attrs

from rmq_actors.actors.block_errors import opener
from rmq_actors.client.admin import Admin
from rmq_actors.client.client_instance import MQClientInstance, open_client_instance
from rmq_actors.client.config import ClientConfig, ProducerConfig
from rmq_actors.client.producer import Producer, run_producer
from rmq_actors.client.transactions import TransactionListener
from rmq_actors.embedding.real_recorder import real_recorder
from rmq_actors.real_io.environment import real_environment
from rmq_actors.remoting.acl import AclClientRpcHook
from rmq_actors.remoting.hooks import RpcHook
from rmq_actors.remoting.tls import TlsClient
from rmq_actors.settings.argument_checks import checked
from rmq_actors.tracing.event import RunInfo
from rmq_actors.tracing.recorder import Recorder
from rmq_actors.wire.acl_signature import SessionCredentials

#: No machine's address (TEST-NET-1). A datagram socket that is connected to it sends nothing, and knows its own end.
_NOWHERE = ("192.0.2.1", 9)
_LOOPBACK = "127.0.0.1"


@checked
@opener
async def open_producer(
    namesrv_addr: str | ClientConfig,
    producer_group: str | ProducerConfig,
    *,
    transaction_listener: TransactionListener | None = None,
    credentials: SessionCredentials | None = None,
    tls: TlsClient | None = None,
    recorder: Recorder | None = None,
) -> AsyncIterator[Producer]:
    """A running producer of a group for the length of a block; brokers then forget it.

    `namesrv_addr` is "host:port;host:port", or all settings of the client; `producer_group` is a name, or all settings
    of the producer. Nobody is asked anything before the first send. `credentials` sign requests where brokers check
    access. Raises `ValueError` for settings that cannot be. What the block raises leaves it as it is; an exception
    group says that tasks of the client failed.
    """
    config = producer_group if isinstance(producer_group, ProducerConfig) else ProducerConfig(producer_group)
    async with (
        open_real_client(namesrv_addr, credentials=credentials, tls=tls, recorder=recorder) as instance,
        run_producer(instance, config, transaction_listener) as producer,
    ):
        yield producer


@checked
@opener
async def open_admin(
    namesrv_addr: str | ClientConfig,
    *,
    credentials: SessionCredentials | None = None,
    tls: TlsClient | None = None,
    recorder: Recorder | None = None,
) -> AsyncIterator[Admin]:
    """An administrator's client for the length of a block; the arguments are those of `open_producer`."""
    async with open_real_client(namesrv_addr, credentials=credentials, tls=tls, recorder=recorder) as instance:
        yield Admin(instance)


@contextlib.asynccontextmanager
async def open_real_client(
    namesrv_addr: str | ClientConfig,
    *,
    credentials: SessionCredentials | None = None,
    tls: TlsClient | None = None,
    recorder: Recorder | None = None,
    directory: str | os.PathLike[str] | None = None,
) -> AsyncIterator[MQClientInstance]:
    """What a producer, consumer or administrator of this process stands on; its files are below `directory`."""
    config = namesrv_addr if isinstance(namesrv_addr, ClientConfig) else ClientConfig(namesrv_addr)
    if config.client_ip == _LOOPBACK:
        config = attrs.evolve(config, client_ip=_own_address())
    recorder = recorder or real_recorder(RunInfo("embedding", "client", 0, source="broker"))
    hooks: Sequence[RpcHook] = () if credentials is None else (AclClientRpcHook(credentials),)
    environment = real_environment(Path.cwd() if directory is None else directory)
    async with open_client_instance(config, environment, recorder.tracer("client"), hooks=hooks, tls=tls) as instance:
        yield instance


def _own_address() -> str:
    """The address by which this machine reaches others; loopback if it reaches none. Nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(_NOWHERE)
            address: str = probe.getsockname()[0]
        except OSError:
            return _LOOPBACK
        return address
