"""This project's broker in a child process; its store and configuration are in its directory."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import attrs

from tests.worlds import own_broker_process
from tests.worlds.java_broker import MAPPED_FILE_SIZE
from tests.worlds.server_process import ServerProcess, free_broker_port, write_properties

_PROJECT = Path(__file__).parents[2]


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
        }
        write_properties(self.configuration, {**defaults, **self.properties})


@attrs.define(eq=False)
class BrokerCommand(OwnBroker):
    """The same as `rmq-actors broker` runs it. What a request changed in its file is there at the next start."""

    def command(self) -> Sequence[str]:
        if not self.configuration.exists():
            self.write_configuration()
        return (sys.executable, "-m", "rmq_actors.cli.entry", "broker", "-c", str(self.configuration))
