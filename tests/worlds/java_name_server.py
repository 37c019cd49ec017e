"""A real RocketMQ 4.9.7 name server in a child process."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import attrs

from tests.worlds.java_process import JavaProcess


@attrs.define(eq=False)
class JavaNameServer(JavaProcess):
    """One name server. `properties` go into namesrv.conf, over the defaults of `default_properties`."""

    main_class: ClassVar = "org.apache.rocketmq.namesrv.NamesrvStartup"
    kind: ClassVar = "namesrv"

    def default_properties(self) -> Mapping[str, str | int]:
        return {
            "listenPort": self.listen_port,
            "kvConfigPath": str(self.directory / "kvConfig.json"),
        }
