"""plain_acl.yml: what it says, what is wrong with it, and what a broker does when it changes."""

from __future__ import annotations

import contextlib
import logging
import re
from collections.abc import Awaitable, Callable

import pytest
import trio
import yaml
from hypothesis import given
from hypothesis import strategies as st

from rmq_actors.protocols.plain_access import Permission, PlainAccessRules, retry_topic
from rmq_actors.remoting.plain_acl_file import FILE_MAX_BYTES, AclFileWatchService, PlainAclError, parse_plain_acl
from rmq_actors.testing.sim_trace import open_sim_recorder
from rmq_actors.tracing.event import RunInfo, of_kind
from rmq_actors.tracing.events.remoting import AclLoad
from rmq_actors.tracing.recorder import Recorder
from sim_net import DiskError, Schedule, SimDisk, World
from tests.worlds.acl_test_data import rules

FILE = "conf/plain_acl.yml"
PUB, SUB, DENY = Permission.PUB, Permission.SUB, Permission.DENY
#: Never to be seen outside.
SECRET = "t0p-secret-key"
ACCOUNT = f"accounts:\n- accessKey: RocketMQ\n  secretKey: {SECRET}\n"


def parse(text: str, path: str = FILE) -> PlainAccessRules:
    return parse_plain_acl({path: text.encode()})


def test_the_example_of_rocketmq_is_read() -> None:
    account = rules().accounts["RocketMQ"]
    assert account.secret_key == "12345678"
    assert (account.admin, account.default_topic_perm, account.default_group_perm) == (False, DENY, SUB)
    assert account.white_remote_address is None
    assert account.resource_perms == {
        "topicA": DENY,
        "topicB": PUB | SUB,
        "topicC": SUB,
        "topicD": PUB,
        "topicE": PUB | SUB,
        retry_topic("groupA"): DENY,
        retry_topic("groupB"): PUB | SUB,
        retry_topic("groupC"): SUB,
        retry_topic("groupD"): PUB,
    }
    admin = rules().accounts["rocketmq2"]
    assert admin.admin
    assert admin.white_remote_address is not None
    assert admin.white_remote_address.match("192.168.1.9")
    assert [strategy.text for strategy in rules().global_white_remote_addresses] == [
        "10.10.103.*",
        "192.168.0.{1,2,7}",
        "2001:db8::7:1-ff:*",
    ]


def test_what_is_not_said_is_denied() -> None:
    account = parse(ACCOUNT).accounts["RocketMQ"]
    assert (account.admin, account.default_topic_perm, account.default_group_perm) == (False, DENY, DENY)
    assert not account.resource_perms


@pytest.mark.parametrize(
    "text",
    ["", "# nothing\n", "accounts:\n", "accounts: []\nglobalWhiteRemoteAddresses:\ndataVersion:\n- counter: 1\n"],
)
def test_a_file_may_say_nothing(text: str) -> None:
    assert parse(text) == PlainAccessRules()


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("- a", f"{FILE}: a mapping is expected, not list"),
        ("acounts: []", f"{FILE}: the key 'acounts' is not one of accounts, dataVersion, globalWhiteRemoteAddresses"),
        ("accounts: {}", f"{FILE}: accounts: a list is expected, not dict"),
        ("accounts: [x]", f"{FILE}: accounts[0]: a mapping is expected, not str"),
        ("globalWhiteRemoteAddresses: 1.2.3.4", "globalWhiteRemoteAddresses: a list is expected, not str"),
        ("globalWhiteRemoteAddresses: [1.2]", "globalWhiteRemoteAddresses: text is expected, not float"),
        ("globalWhiteRemoteAddresses: [1.2.3.500]", "'1.2.3.500' names no addresses: '500' is more than 255"),
        ("accounts: [{secretKey: abcdefg}]", "accounts[0]: accessKey: text is expected, not nothing"),
        ("accounts: [{accessKey: short}]", "accounts[0]: accessKey: 5 characters, at least 7 are needed"),
        ("accounts: [{accessKey: RocketMQ}]", "accounts[0] (RocketMQ): secretKey: text is expected, not nothing"),
        (
            f"{ACCOUNT}- accessKey: other-key\n  secretKey: 2.5\n",
            "accounts[1] (other-key): secretKey: text is expected",
        ),
        (f"{ACCOUNT}  admin: 'yes'", "accounts[0] (RocketMQ): admin: 'yes' is neither true nor false"),
        (f"{ACCOUNT}  whiteRemoteAddress: x.y", "accounts[0] (RocketMQ): whiteRemoteAddress: 'x.y' names no addresses"),
        (f"{ACCOUNT}  whiteRemoteAdress: '*'", "accounts[0]: the key 'whiteRemoteAdress' is not one of accessKey, "),
        (f"{ACCOUNT}  defaultTopicPerm: PUBSUB", "(RocketMQ): defaultTopicPerm: 'PUBSUB' is not one of DENY, PUB, SUB"),
        (f"{ACCOUNT}  topicPerms: [topicA]", "(RocketMQ): topicPerms: 'topicA' is not of the form name=permission"),
        (f"{ACCOUNT}  groupPerms: [groupA=ALL]", "(RocketMQ): groupPerms: groupA: 'ALL' is not one of DENY, PUB, SUB"),
        (f"{ACCOUNT}  groupPerms: [=SUB]", "groupPerms: '=SUB' is not of the form name=permission"),
        (f"{ACCOUNT}- accessKey: RocketMQ\n  secretKey: other-secret", "accounts[1]: accessKey 'RocketMQ' is that of"),
        (f"{ACCOUNT}   x: [", "line "),
        ("a: &a [1]\nb: *a", "line 2: aliases are not read"),
        ("[" * 100_000, "nest"),  # by this project, or by PyYAML from 6.0.4 on
        ("a: 2020-13-45", f"{FILE}: "),
        ("a: !!int ''", f"{FILE}: no YAML"),
        ("a: !!timestamp x", f"{FILE}: no YAML"),
        ("a: \x01", f"{FILE}: "),
        ("\udcff", f"{FILE}: "),
    ],
)
def test_an_error_names_the_file_the_account_and_the_key(text: str, error: str) -> None:
    with pytest.raises(PlainAclError) as caught:
        parse_plain_acl({FILE: text.encode("utf-8", "surrogateescape")})
    assert str(caught.value).startswith(FILE)
    assert error in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        f"accounts: [{{accessKey: RocketMQ, secretKey:{SECRET}}}]",  # a space is missing
        f"accounts:\n- accessKey: RocketMQ\n  secretKey: *{SECRET}\n",
        f"accounts:\n- accessKey: RocketMQ\n  secretKey: !{SECRET} x\n",
        f"accounts:\n- accessKey: RocketMQ\n  secretKey: {SECRET}: x\n",
        f"accounts:\n- accessKey: RocketMQ\n  secretKey: !!bool {SECRET}\n",
        f"accounts:\n- accessKey: RocketMQ\n  secretKey: '{SECRET}\n",
        f"accounts:\n- accessKey: RocketMQ\n  secretKey: [{SECRET}]\n",
        f"{ACCOUNT}  admin: maybe\n",
        f"{ACCOUNT}\x02",
    ],
)
@pytest.mark.parametrize("loader", ["CSafeLoader", "SafeLoader"])
def test_no_error_shows_a_secret(text: str, loader: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rmq_actors.remoting.plain_acl_file._Loader", getattr(yaml, loader))
    with pytest.raises(PlainAclError) as caught:
        parse(text)
    error: BaseException | None = caught.value
    while error is not None:  # as a traceback shows it
        assert SECRET not in str(error)
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)


@given(st.binary(max_size=200))
def test_no_bytes_do_anything_else(data: bytes) -> None:
    with contextlib.suppress(PlainAclError):
        parse_plain_acl({FILE: data})


@given(st.text("accounts: -[]{}\n'\"&*!|>#%@`,?RocketMQ=DENY", max_size=60))
def test_no_text_does_anything_else(text: str) -> None:
    with contextlib.suppress(PlainAclError):
        parse(text)


def write(disk: SimDisk, path: str, text: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        disk.remove(path)
    with contextlib.closing(disk.open(path, allocate_bytes=len(text))) as file:
        file.write_at(0, text.encode())


def account(access_key: str) -> str:
    return f"accounts: [{{accessKey: {access_key}, secretKey: {SECRET}}}]"


class Watched:
    """A service that watches the files of one node, in a world."""

    def __init__(self) -> None:
        self.world = World(1, guard_packages=("rmq_actors",))
        self.node = self.world.node("broker")
        self.recorder: Recorder = open_sim_recorder(self.world, RunInfo("test", "acl", 1))
        self.service = AclFileWatchService(self.node.disk, self.recorder.tracer("broker"))

    @property
    def accounts(self) -> list[str]:
        return sorted(self.service.rules.accounts)

    @property
    def trace(self) -> list[tuple[str | None, str]]:
        return [(event.status, event.detail) for event in of_kind(self.recorder.events, AclLoad)]

    def run(self, steps: Callable[[], Awaitable[None]], *schedule: DiskError) -> None:
        """Load, watch, take the steps, stop."""

        async def live(node: object) -> None:
            self.service.load()
            async with trio.open_nursery() as nursery:
                await nursery.start(self.service.run)
                await steps()
                self.service.request_stop()
            done.set()

        async def main(world: World) -> None:
            world.start_schedule(Schedule(schedule))
            self.node.boot(live)
            await done.wait()

        done = trio.Event()
        self.world.run(main)


async def one_look() -> None:
    await trio.sleep(5.1)


def test_before_the_first_load_nobody_may_do_anything() -> None:
    assert Watched().service.rules == PlainAccessRules()


def test_a_change_takes_effect_within_one_interval() -> None:
    watched = Watched()
    write(watched.node.disk, FILE, account("first-key"))

    async def steps() -> None:
        assert watched.accounts == ["first-key"]
        before = watched.service.rules
        await one_look()
        assert watched.service.rules is before
        write(watched.node.disk, FILE, account("second-key"))
        await trio.sleep(4.8)
        assert watched.accounts == ["first-key"]
        await trio.sleep(0.3)
        assert watched.accounts == ["second-key"]

    watched.run(steps)
    assert watched.trace == [("ok", FILE)] * 2


def test_all_yaml_files_below_conf_acl_count() -> None:
    watched = Watched()
    disk = watched.node.disk
    write(disk, FILE, account("main-key"))
    write(disk, "conf/acl/a.yml", account("key-of-a"))
    write(disk, "conf/acl/deeper/still/b.yaml", account("key-of-b"))
    write(disk, "conf/acl/notes.txt", account("key-of-notes"))
    write(disk, "conf/acl/tools.yml", f"accessKey: tools-key\nsecretKey: {SECRET}\n")

    async def steps() -> None:
        assert watched.accounts == ["key-of-a", "key-of-b", "main-key"]
        disk.remove("conf/acl/a.yml")
        write(disk, "conf/acl/c.yml", account("key-of-c"))
        await one_look()
        assert watched.accounts == ["key-of-b", "key-of-c", "main-key"]
        disk.remove(FILE)
        await one_look()
        assert watched.accounts == ["key-of-b", "key-of-c"]

    watched.run(steps)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("accounts: [", f"{FILE}: line"),
        ("", f"{FILE}: is empty now"),
        ("accounts: [{accessKey: x}]", f"{FILE}: accounts[0]: accessKey: 1 characters"),
        (f"# {'x' * FILE_MAX_BYTES}", f"{FILE}: {FILE_MAX_BYTES + 2} bytes, at most {FILE_MAX_BYTES} are read"),
        (None, f"access control needs {FILE}, or files in conf/acl: there are none"),
        (account("key-of-a"), "accounts[0]: accessKey 'key-of-a' is that of conf/acl/a.yml: accounts[0] already"),
    ],
)
def test_what_cannot_be_used_changes_nothing_and_is_named_once(
    content: str | None, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    watched = Watched()
    disk = watched.node.disk
    write(disk, FILE, account("first-key"))
    if content is not None:
        write(disk, "conf/acl/a.yml", account("key-of-a"))

    async def steps() -> None:
        before = watched.service.rules
        with contextlib.suppress(FileNotFoundError):
            disk.remove(FILE)
        if content is not None:
            write(disk, FILE, content)
        for _ in range(3):
            await one_look()
        assert watched.service.rules is before
        write(disk, FILE, account("third-key"))
        await one_look()
        assert "third-key" in watched.accounts

    with caplog.at_level(logging.ERROR):
        watched.run(steps)
    assert [status for status, _ in watched.trace] == ["ok", "kept", "ok"]
    assert reason in watched.trace[1][1]
    assert [record.getMessage().count(reason) for record in caplog.records] == [1]


def test_a_disk_that_fails_changes_nothing() -> None:
    watched = Watched()
    write(watched.node.disk, FILE, account("first-key"))

    async def steps() -> None:
        await trio.sleep(9)
        assert watched.accounts == ["first-key"]
        write(watched.node.disk, FILE, account("second-key"))
        await trio.sleep(3)
        assert watched.accounts == ["second-key"]

    fails = DiskError(at_s=4.0, duration_s=2.0, node="broker", operation="open")
    watched.run(steps, fails)
    assert [status for status, _ in watched.trace] == ["ok", "kept", "ok"]


def test_a_broker_does_not_start_without_any_file() -> None:
    with pytest.raises(PlainAclError, match=r"access control needs conf/plain_acl\.yml, or files in conf/acl"):
        Watched().service.load()


HOME = "/opt/rocketmq"


@pytest.mark.parametrize(
    ("files", "reason"),
    [
        ({}, f"access control needs {HOME}/{FILE}, or files in {HOME}/conf/acl: there are none "),
        ({FILE: "accounts: ["}, f"{HOME}/{FILE}: line 2, column "),
        ({"conf/acl/a.yml": f"# {'x' * FILE_MAX_BYTES}"}, f"{HOME}/conf/acl/a.yml: {FILE_MAX_BYTES + 2} bytes, at "),
        (
            {"conf/acl/a.yml": account("key-of-a"), FILE: account("key-of-a")},
            f"{HOME}/{FILE}: accounts[0]: accessKey 'key-of-a' is that of {HOME}/conf/acl/a.yml: accounts[0] already",
        ),
    ],
    ids=["missing", "not YAML", "too long", "twice"],
)
def test_below_an_absolute_home_paths_are_absolute(files: dict[str, str], reason: str) -> None:
    watched = Watched()
    service = AclFileWatchService.below(f"{HOME}/", watched.node.disk, watched.recorder.tracer("broker"))
    for path, text in files.items():
        write(watched.node.disk, f"opt/rocketmq/{path}", text)
    with pytest.raises(PlainAclError, match=f"^{re.escape(reason)}"):
        service.load()


@pytest.mark.trio
async def test_a_change_that_is_refused_names_the_absolute_path() -> None:
    watched = Watched()
    service = AclFileWatchService.below(HOME, watched.node.disk, watched.recorder.tracer("broker"))
    write(watched.node.disk, f"opt/rocketmq/{FILE}", account("first-key"))
    service.load()
    assert watched.trace == [("ok", f"{HOME}/{FILE}")]
    with pytest.raises(PlainAclError, match=rf"^{HOME}/conf/plain_acl\.yml: accounts\[0\]: accessKey: 1 characters"):
        await service.persist(service.file, b"accounts: [{accessKey: x}]")
    write(watched.node.disk, f"opt/rocketmq/{FILE}", " ")
    with pytest.raises(PlainAclError, match=rf"^{HOME}/conf/plain_acl\.yml: is empty now$"):
        service.load()


def test_no_secret_is_logged_or_traced(caplog: pytest.LogCaptureFixture) -> None:
    watched = Watched()
    write(watched.node.disk, FILE, account("first-key"))

    async def steps() -> None:
        write(watched.node.disk, FILE, f"accounts: [{{accessKey: first-key, secretKey: {SECRET}, admin: what}}]")
        await one_look()

    with caplog.at_level(logging.DEBUG):
        watched.run(steps)
    assert len(watched.trace) == 2
    assert caplog.records
    assert SECRET not in caplog.text
    assert SECRET not in repr(watched.recorder.events)
    assert SECRET not in repr(watched.service.rules)
