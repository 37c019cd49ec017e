"""Servers by name, each with a directory of its own below a common one."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

import attrs

from tests.interop.name_server import NameServer
from tests.worlds.java_broker import JavaBroker
from tests.worlds.java_name_server import JavaNameServer
from tests.worlds.java_process import JavaRuntime
from tests.worlds.own_broker import BrokerCommand, OwnBroker
from tests.worlds.server_process import ServerProcess

ServerT = TypeVar("ServerT", bound=ServerProcess)


@attrs.define(eq=False)
class Servers:
    """What it makes is not started yet; what still runs at its end is killed."""

    directory: Path
    java_runtime: JavaRuntime
    _to_kill: contextlib.ExitStack = attrs.field(factory=contextlib.ExitStack, init=False)

    def java_broker(
        self,
        name: str,
        runtime: JavaRuntime | None = None,
        java_options: Sequence[str] = (),
        **properties: str | int,
    ) -> JavaBroker:
        """A broker of RocketMQ 4.9.7, or of the one in `runtime`."""
        directory = self._new_directory(name)
        return self._add(
            JavaBroker(directory, runtime or self.java_runtime, properties, java_options=tuple(java_options))
        )

    def java_name_server(self, name: str, **properties: str | int) -> JavaNameServer:
        """A name server of RocketMQ 4.9.7."""
        return self._add(JavaNameServer(self._new_directory(name), self.java_runtime, properties))

    def name_server(self, name: str, **properties: str | int) -> NameServer:
        """A name server of this project."""
        return self._add(NameServer(self._new_directory(name), properties))

    def own_broker(self, name: str, **properties: str | int) -> OwnBroker:
        """A broker of this project."""
        return self._add(OwnBroker(self._new_directory(name), properties))

    def broker_command(self, name: str, **properties: str | int) -> BrokerCommand:
        """A broker of this project, as `rmq-actors broker` runs it."""
        return self._add(BrokerCommand(self._new_directory(name), properties))

    def close(self) -> None:
        """Kill what runs."""
        self._to_kill.close()

    def _add(self, server: ServerT) -> ServerT:
        self._to_kill.callback(server.kill)
        return server

    def _new_directory(self, name: str) -> Path:
        directory = self.directory / name
        directory.mkdir()
        return directory
