"""RocketMQ's mqadmin 4.9.7, which signs its commands, looks at accounts of this project's broker and changes them."""

from __future__ import annotations

import re
import stat
from collections.abc import Iterator

import pytest

from tests.interop.java_gateway import CommandFailed, JavaGateway, open_java_gateway
from tests.interop.servers import Servers
from tests.worlds.java_process import JavaRuntime

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]

ADMIN, SECRET = "interopAdmin", "the secret of it"


@pytest.fixture
def signing_gateway(java_runtime: JavaRuntime, tmp_path_factory: pytest.TempPathFactory) -> Iterator[JavaGateway]:
    """An mqadmin that has an account."""
    home = tmp_path_factory.mktemp("java-gateway-signing")
    (home / "conf").mkdir()
    (home / "conf" / "tools.yml").write_text(f"accessKey: {ADMIN}\nsecretKey: {SECRET}\n")
    with open_java_gateway(home, java_runtime) as gateway:
        yield gateway


def test_accounts_are_made_changed_shown_and_deleted(servers: Servers, signing_gateway: JavaGateway) -> None:
    name_server = servers.name_server("namesrv")
    name_server.start()
    home = servers.directory / "broker"
    broker = servers.broker_command("broker", namesrvAddr=name_server.address, aclEnable="true", rocketmqHome=str(home))
    file = home / "conf" / "plain_acl.yml"
    file.parent.mkdir()
    file.write_text(
        f"globalWhiteRemoteAddresses: []\naccounts:\n- {{accessKey: {ADMIN}, secretKey: {SECRET}, admin: true}}\n"
    )
    broker.start()

    def admin(command: str, *options: str) -> str:
        return signing_gateway.mqadmin(name_server.address, command, "-b", broker.address, *options)

    account = "-a", "userOfTests", "-s", "another secret"
    done = admin("updateAclConfig", *account, "-t", "TopicA=PUB,TopicB=PUB|SUB", "-i", "DENY", "-m", "false")
    assert f"create or update plain access config to {broker.address} success." in done
    assert "success" in admin("updateAclConfig", *account, "-g", "GroupA=SUB", "-w", "10.0.0.*")
    shown = admin("getAccessConfigSubCommand")
    (user,) = [each for each in shown.split("\n\n") if "userOfTests" in each]
    for field, value in (
        ("topicPerms", "[TopicA=PUB, TopicB=PUB|SUB]"),
        ("groupPerms", "[GroupA=SUB]"),
        ("whiteRemoteAddress", "10.0.0.*"),
        ("defaultTopicPerm", "DENY"),
        ("secretKey", ""),
    ):
        assert re.search(rf"^ *{field} *: {re.escape(value)}$", user, re.MULTILINE), user
    assert SECRET not in shown
    assert re.search(rf"{broker.address} +{file} +2 +20\d\d-", admin("clusterAclConfigVersion"))
    # Beside what somebody writes into the file at the same time; and nobody else may read it then.
    file.write_text(file.read_text() + "# by hand\n")
    assert "success" in admin("updateGlobalWhiteAddr", "-g", "10.10.103.*,192.168.0.1", "-p", str(file))
    assert "[10.10.103.*, 192.168.0.1]" in admin("getAccessConfigSubCommand")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert "success" in admin("deleteAclConfig", "-a", "userOfTests")
    assert "userOfTests" not in file.read_text()
    with pytest.raises(CommandFailed, match="corresponding to accessConfig has been deleted failed"):
        admin("deleteAclConfig", "-a", "userOfTests")
    with pytest.raises(CommandFailed, match="'ALL' is not one of"):
        admin("updateAclConfig", *account, "-t", "TopicA=ALL")
    # All of it holds at the next start, too.
    broker.stop()
    broker.start()
    assert "[10.10.103.*, 192.168.0.1]" in admin("getAccessConfigSubCommand")
