"""This project's name server in a child process, as `rmq-actors namesrv` runs it."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence

import attrs

from tests.worlds.server_process import ServerProcess, write_properties


@attrs.define(eq=False)
class NameServer(ServerProcess):
    """One name server. `properties` go into namesrv.conf, over the defaults."""

    properties: Mapping[str, str | int] = attrs.field(factory=dict)

    def command(self) -> Sequence[str]:
        configuration = self.directory / "namesrv.conf"
        defaults: dict[str, str | int] = {
            "listenPort": self.listen_port,
            "kvConfigPath": str(self.directory / "kvConfig.json"),
        }
        write_properties(configuration, {**defaults, **self.properties})
        return (sys.executable, "-m", "rmq_actors.cli.entry", "namesrv", "-c", str(configuration))
