"""Java's mqadmin on a slow machine: that an answer comes late says nothing."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pytest

from tests.interop.java_gateway import CommandFailed, JavaGateway
from tests.interop.name_server import NameServer
from tests.interop.servers import Servers

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]


class SlowNameServer:
    """Runs mqadmin beside a name server that answers nothing at first."""

    def __init__(self, name_server: NameServer, gateway: JavaGateway) -> None:
        self.name_server = name_server
        self.run_once = gateway.run_mqadmin_once
        self.printed: list[str] = []

    def run_mqadmin_once(self, name_server: str, command: str, *options: str) -> str:
        """In the gateway's place: the name server is back for the second time."""
        if not self.printed:
            self.name_server.pause()
        self.printed.append(self.run_once(name_server, command, *options))
        self.name_server.resume()
        return self.printed[-1]


def test_a_command_that_is_not_answered_in_time_is_run_again(
    servers: Servers, java_gateway: JavaGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    name_server = servers.name_server("namesrv")
    name_server.start()
    slow = SlowNameServer(name_server, java_gateway)
    monkeypatch.setattr(java_gateway, "run_mqadmin_once", slow.run_mqadmin_once)
    shown = java_gateway.mqadmin(name_server.address, "getNamesrvConfig")
    assert re.search(rf"^listenPort += +{name_server.listen_port}$", shown, re.MULTILINE), shown
    late, in_time = slow.printed
    assert "Caused by: org.apache.rocketmq.remoting.exception.Remoting" in late
    assert in_time == shown


def test_a_command_that_fails_is_run_once(java_gateway: JavaGateway, monkeypatch: pytest.MonkeyPatch) -> None:
    runs: list[Sequence[str]] = []

    def run_mqadmin_once(*arguments: str) -> str:
        runs.append(arguments)
        return "org.apache.rocketmq.client.exception.MQClientException: CODE: 17"

    monkeypatch.setattr(java_gateway, "run_mqadmin_once", run_mqadmin_once)
    with pytest.raises(CommandFailed, match="CODE: 17"):
        java_gateway.mqadmin("127.0.0.1:1", "topicRoute", "-t", "unknown")
    assert len(runs) == 1
