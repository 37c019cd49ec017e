"""This project's broker in a child process; its store and configuration are in its directory."""

from __future__ import annotations

import functools
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import attrs

from tests.worlds import own_broker_process
from tests.worlds.java_broker import FULL_DISK, MAPPED_FILE_SIZE
from tests.worlds.java_client import JavaClient
from tests.worlds.server_process import ServerProcess, free_broker_port, write_properties

_PROJECT = Path(__file__).parents[2]
_GET_BROKER_CLUSTER_INFO = 106
_REGISTER_TIMEOUT_S = 120.0


@attrs.define(eq=False)
class OwnBroker(ServerProcess):
    """One broker. `properties` go into broker.conf, over the defaults."""

    properties: Mapping[str, str | int] = attrs.field(factory=dict)
    listen_port: int = attrs.field(factory=free_broker_port, kw_only=True)

    @property
    def store(self) -> Path:
        """The store directory."""
        return self.directory / "store"

    @property
    def ha_address(self) -> str:
        """Where slaves connect to."""
        return f"127.0.0.1:{self.listen_port + 1}"

    def start(self) -> None:
        """Start the process; return when it is up and each name server that runs knows it: clients then have a route.

        RocketMQ's broker, too, registers before it says that it is up.
        """
        super().start()
        for name_server in str(self.properties.get("namesrvAddr", "")).split(";"):
            if name_server:
                known = functools.partial(self._is_known_to, name_server)
                self.wait_until(known, _REGISTER_TIMEOUT_S, f"the name server {name_server} knows it")

    def _is_known_to(self, name_server: str) -> bool:
        try:
            with JavaClient.connect(int(name_server.rpartition(":")[2])) as client:
                return f'"{self.address}"'.encode() in client.call(_GET_BROKER_CLUSTER_INFO, {}).body
        except ConnectionRefusedError:
            return True  # nobody is there to register with

    def environment(self) -> Mapping[str, str]:
        return {"PYTHONPATH": str(_PROJECT)}

    @property
    def configuration(self) -> Path:
        """The broker.conf."""
        return self.directory / "broker.conf"

    def command(self) -> Sequence[str]:
        self.write_configuration()
        return (sys.executable, own_broker_process.__file__, str(self.configuration))

    def write_configuration(self) -> None:
        """Write the broker.conf."""
        defaults: dict[str, str | int] = {
            "listenPort": self.listen_port,
            "storePathRootDir": str(self.store),
            "mappedFileSizeCommitLog": MAPPED_FILE_SIZE,
            "mappedFileSizeConsumeQueue": 2000,
            "maxHashSlotNum": 500,
            "maxIndexNum": 2000,
            **FULL_DISK,
            "diskSpaceWarningLevelRatio": 100,
        }
        write_properties(self.configuration, {**defaults, **self.properties})


@attrs.define(eq=False)
class BrokerCommand(OwnBroker):
    """The same as `rmq-actors broker` runs it. What a request changed in its file is there at the next start."""

    def command(self) -> Sequence[str]:
        if not self.configuration.exists():
            self.write_configuration()
        return (sys.executable, "-m", "rmq_actors.cli.entry", "broker", "-c", str(self.configuration))
