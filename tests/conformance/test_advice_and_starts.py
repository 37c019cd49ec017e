"""What `store check` and `store advise` say of a store whose files were spoilt, beside what a start makes of them."""

from __future__ import annotations

import functools
import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import trio
from typer.testing import CliRunner

from rmq_actors.broker.broker_controller import open_broker
from rmq_actors.broker.config import BrokerConfig
from rmq_actors.cli.store import store_app
from rmq_actors.ha.config import HaConfig
from rmq_actors.real_io.environment import real_environment
from rmq_actors.real_io.os_disk import OsDisk
from rmq_actors.remoting.config import RemotingServerConfig
from rmq_actors.store.check.check_store import check_store
from rmq_actors.store.check.repair import RepairStep
from rmq_actors.store.config import MessageStoreConfig
from rmq_actors.wire.record import Message
from rmq_actors.wire.remoting_command import FRAME_MAX_LENGTH_BYTES
from tests.worlds.recording import new_tracer
from tests.worlds.server_process import free_broker_port

_NOTE = (
    '{"end":1,"promotion":"p","role":"ASYNC_MASTER","slaveAddr":"127.0.0.1:1","slaveHaAddr":"127.0.0.1:2","slaveId":1,'
    '"term":1}'
)
#: What a start takes.
_GOOD = {
    "topics.json": '{"topicConfigTable":{}}',
    "subscriptionGroup.json": '{"subscriptionGroupTable":{}}',
    "consumerOffset.json": '{"offsetTable":{"T@G":{0:5}}}',
    "delayOffset.json": '{"offsetTable":{1:1}}',
    "deletedTopics.json": '{"deleting":[],"points":{}}',
    "roleExchange.json": _NOTE,
    "replicationTerm.json": '{"leads":true,"resigned":false,"term":1}',
}
Change = Callable[[Path], object]


def write(text: str) -> Change:
    return lambda path: path.write_text(text)


def nothing(_: Path) -> None:
    """No file of that name."""


def link_to_nowhere(path: Path) -> None:
    path.symlink_to(path.with_name("nowhere"))


def changes() -> Iterator[object]:
    """Each file or directory that a start looks at, spoilt."""
    bad, empty = write("[7"), write("")
    for name, text in _GOOD.items():
        path, good = f"config/{name}", write(text)
        contents = {"bad": bad, "empty": empty, "good": good, "gone": nothing, "directory": Path.mkdir}
        for what, backup in (
            *(("bad", "gone"), ("bad", "bad"), ("bad", "good"), ("gone", "bad"), ("gone", "good"), ("empty", "gone")),
            *(("empty", "empty"), ("empty", "good"), ("good", "bad"), ("good", "directory"), ("directory", "gone")),
        ):
            if name == "roleExchange.json" and "good" in (what, backup):
                continue  # the broker begins to go on with the exchange
            change = {path: contents[what], f"{path}.bak": contents[backup]}
            yield pytest.param(change, id=f"{name} {what}, its bak {backup}")
    yield pytest.param({"config/roleExchange.json": write(_NOTE + " " * 5000)}, id="a note that is too long")
    long = _GOOD["consumerOffset.json"] + " " * FRAME_MAX_LENGTH_BYTES
    yield pytest.param({"config/consumerOffset.json": write(long)}, id="offsets that no frame has room for")
    odd = "{'offsetTable':{" + ",".join(f"'T{each}@G':{{0:1}}" for each in range(40_000)) + "}}"
    yield pytest.param({"config/consumerOffset.json": write(odd)}, id="many offsets as a person writes them")
    for name in ("abort", "checkpoint", "lock"):
        yield pytest.param({name: Path.mkdir}, id=f"{name} a directory")
        yield pytest.param({name: os.mkfifo}, id=f"{name} a pipe")
        yield pytest.param({name: link_to_nowhere}, id=f"{name} a link to nowhere")
    for name in ("commitlog", "config", "consumequeue", "consumequeue_ext", "cut", "index", "transaction"):
        yield pytest.param({name: Path.touch}, id=f"{name} a file")
        yield pytest.param({name: os.mkfifo}, id=f"{name} a pipe")
        yield pytest.param({name: link_to_nowhere}, id=f"{name} a link to nowhere")
    for name in ("commitlog/00000000000000000000", "consumequeue/Topic/0/00000000000000000000"):
        yield pytest.param({name: os.mkfifo}, id=f"{name} a pipe")
    for name in ("index/notes.txt", "commitlog/notes.txt", "commitlog/00000000000000000000.bak"):
        yield pytest.param({name: Path.touch}, id=f"{name} beside the others")
    yield pytest.param({"config/foo.json": bad}, id="what nobody reads")


def changes_of_rows() -> Iterator[object]:
    """Names and lengths among files of queues, of the index and of the log."""
    queue, other = "consumequeue/Topic/0", "consumequeue/Topic/1"
    for name in (f"{queue}/notes.txt", f"{queue}/00000000000000000000.bak", "consumequeue_ext/Topic/0/notes.txt"):
        yield pytest.param({name: Path.touch}, id=f"{name} beside the others")
    for name in ("consumequeue/notes.txt", "consumequeue/Topic/notes.txt", "consumequeue/Topic/9", "consumequeue/T9"):
        yield pytest.param({name: Path.touch}, id=f"{name} a file among queues")
        yield pytest.param({name: os.mkfifo}, id=f"{name} a pipe among queues")
        yield pytest.param({name: Path.mkdir}, id=f"{name} an empty directory among queues")
        yield pytest.param({name: link_to_nowhere}, id=f"{name} a link to nowhere among queues")
    for length in (0, 1, 39, 40, 41, 5000):
        zeros = write("\0" * length)
        yield pytest.param({"index/20260101000000000": zeros}, id=f"an index file of {length} bytes")
        yield pytest.param({f"{other}/00000000000000000000": zeros}, id=f"a queue file of {length} bytes")
        yield pytest.param({"commitlog/00000000000000065536": zeros}, id=f"a log file of {length} bytes")
        yield pytest.param(
            {"index/20260101000000000": write(""), "index/20260101000000001": zeros},
            id=f"{length} bytes after an empty one",
        )
    yield pytest.param({"commitlog": nothing}, id="no log")
    yield pytest.param({"commitlog": Path.mkdir}, id="a log without files")
    yield pytest.param({"commitlog": nothing, "checkpoint": nothing}, id="no log and no checkpoint")
    for length in (0, 100, 2020):
        zeros = write("\0" * length)
        yield pytest.param({f"{queue}/00000000000000000000": zeros}, id=f"a queue's only file of {length} bytes")
        yield pytest.param({f"{queue}/00000000000000002000": zeros}, id=f"a queue's last file of {length} bytes")
    for name in ("00000000000000004000", "00000000000000000777"):
        yield pytest.param({f"{queue}/{name}": write("\0" * 2000)}, id=f"a queue's file {name}")
    yield pytest.param({queue: Path.touch}, id="a queue that is a file")
    yield pytest.param({queue: link_to_nowhere}, id="a queue that is a link to nowhere")
    for name in (
        *("transaction/statetable/notes.txt", "transaction/redolog/TRANSACTION_REDOLOG_TOPIC_XXXX/0/notes.txt"),
        *("consumequeue_ext/Other/0/notes.txt", "consumequeue_ext/Topic/x/notes.txt"),
        *("consumequeue/Topic/99999999999/notes.txt", "consumequeue/Topic/2147483648/notes.txt"),
    ):
        yield pytest.param({name: Path.touch}, id=f"{name}, which is strange")
    for term in ((1 << 63) - 2, (1 << 63) - 1, 1 << 63, -1, 0):
        text = _GOOD["replicationTerm.json"].replace('"term":1', f'"term":{term}')
        yield pytest.param({"config/replicationTerm.json": write(text)}, id=f"term {term}")


async def run_broker(root: Path, messages: int = 0, *, ext: bool = True, index: bool = True) -> None:
    """Start a broker on a store, put messages, and stop it."""
    config = BrokerConfig(
        "ours",
        MessageStoreConfig(
            mapped_file_size_commit_log_bytes=1 << 16,
            mapped_file_size_consume_queue_bytes=2000,
            mapped_file_size_consume_queue_ext_bytes=4096,
            enable_consume_queue_ext=ext,
            message_index_enable=index,
            max_hash_slot_num=500,
            max_index_num=2000,
        ),
        HaConfig(ha_listen_port=0),
        remoting=RemotingServerConfig(listen_port=free_broker_port()),
    )
    with trio.fail_after(30):
        async with open_broker(config, real_environment(root), new_tracer()) as broker:
            for number in range(messages):
                await broker.put_message(Message("Topic", b"%d" % number, properties={"KEYS": "k"}))


def advice(root: Path) -> list[RepairStep]:
    """What `store advise` prints. It says nothing else: what a start logs is not its own to tell."""
    ended = CliRunner().invoke(store_app, ["advise", str(root), "--json"])
    assert ended.stderr == ""
    steps = [RepairStep(**json.loads(line)) for line in ended.stdout.splitlines()]
    assert ended.exit_code == any(step.who != "start" for step in steps)
    return steps


@pytest.fixture(scope="module")
def used(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("used") / "store"
    root.mkdir()
    for _ in range(2):
        trio.run(run_broker, root, 130)
    return root


def spoilt(used: Path, tmp_path: Path, change: dict[str, Change]) -> Path:
    root = tmp_path / "store"
    shutil.copytree(used, root)
    for name, make in change.items():
        path = root / name
        if path.is_dir():
            shutil.rmtree(path)
        path.unlink(missing_ok=True)
        path.parent.mkdir(parents=True, exist_ok=True)
        make(path)
    return root


@pytest.mark.parametrize("has_crashed", [False, True])
@pytest.mark.parametrize("change", [*changes(), *changes_of_rows()])
def test_advice_knows_whether_the_next_start_refuses(
    used: Path, tmp_path: Path, change: dict[str, Change], *, has_crashed: bool
) -> None:
    root = spoilt(used, tmp_path, change)
    if has_crashed and not (root / "abort").exists() and not (root / "abort").is_symlink():
        (root / "abort").touch()
    errors = [finding for finding in check_store(OsDisk(root)) if finding.severity == "error"]
    steps = advice(root)
    refuses = any(step.who == "refusal" for step in steps)
    assert errors or not refuses
    assert {step.who for step in steps} <= ({"refusal", "person"} if refuses else {"start", "person"})
    try:
        trio.run(run_broker, root)
    except (OSError, ValueError, BaseExceptionGroup):
        assert refuses
    else:
        assert not refuses


@pytest.mark.parametrize("name", ["consumequeue_ext/Topic/0/notes.txt", "consumequeue_ext/Other/0/notes.txt"])
def test_a_refusal_for_want_of_a_setting_names_the_setting(used: Path, tmp_path: Path, name: str) -> None:
    root = spoilt(used, tmp_path, {name: Path.touch})
    assert {
        step.path for step in advice(root) if step.text.endswith("a start with enableConsumeQueueExt refuses it")
    } == {name}
    trio.run(functools.partial(run_broker, root, ext=False))


@pytest.mark.parametrize("change", [Path.touch, link_to_nowhere])
@pytest.mark.parametrize(
    ("name", "condition"),
    [("consumequeue_ext", "if enableConsumeQueueExt=true"), ("index", "unless messageIndexEnable=false")],
)
def test_so_does_one_for_a_directory_that_is_none(
    used: Path, tmp_path: Path, name: str, condition: str, change: Change
) -> None:
    root = spoilt(used, tmp_path, {name: change})
    said = [step.text for step in advice(root) if step.who == "refusal"]
    assert len(said) == 1
    assert said[0].startswith(f"the next start refuses, {condition}: ")
    with pytest.raises((OSError, ValueError)):
        trio.run(run_broker, root)
    trio.run(functools.partial(run_broker, root, ext=False, index=False))


@pytest.mark.parametrize("change", [nothing, Path.mkdir])
def test_nobody_is_told_to_derive_again_from_a_log_that_lacks_files(used: Path, tmp_path: Path, change: Change) -> None:
    """It would start then, without what the queues still tell of."""
    root = tmp_path / "store"
    shutil.copytree(used, root)
    (root / "commitlog/00000000000000000000").unlink()
    change(root / "commitlog/00000000000000000000")
    steps = {step.path: step.text for step in advice(root) if step.who == "person"}
    assert steps["consumequeue/Topic/0/00000000000000000000"].startswith("see to the log first: ")
    assert not any("move consumequeue/" in text for text in steps.values())


def test_nor_where_the_checkpoint_that_knew_of_the_files_is_lost_too(used: Path, tmp_path: Path) -> None:
    """A start takes such a log, and the queues are all that tells of the others."""
    root = tmp_path / "store"
    shutil.copytree(used, root)
    (root / "commitlog/00000000000000000000").write_bytes(bytes(1 << 16))
    (root / "checkpoint").unlink()
    steps = {step.path: step.text for step in advice(root) if step.who == "person"}
    assert steps["consumequeue/Topic/0/00000000000000000000"].startswith("see to the log first: ")
    assert not any("move consumequeue/" in text for text in steps.values())
