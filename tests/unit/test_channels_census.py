"""Every channel there is, the page that draws them, and who may make or write what."""

from __future__ import annotations

import ast
import importlib
import pkgutil
from collections.abc import Iterator
from pathlib import Path

import rmq_actors
from rmq_actors.actors.services.channels import CHANNELS

PACKAGE = Path(rmq_actors.__file__).parent
ARCHITECTURE = PACKAGE.parent / "ARCHITECTURE.md"

#: Packages of optional libraries: no actor lives there.
WITHOUT_ACTORS = ("rmq_actors.analysis", "rmq_actors.cli", "rmq_actors.testing", "rmq_actors.tracing")

Row = tuple[str, str, int, str, str]

EXPECTED: set[Row] = {
    ("broker.masters", "latest", 1, "BrokerRegistrationService", "SlaveSynchronize"),
    ("broker.topic_changes", "latest", 1, "TopicConfigManager", "BrokerRegistrationService"),
    ("ha.accepted", "wait", 16, "AcceptSocketService", "HAService"),
    ("ha.first_report", "wait", 1, "ReadSocketService", "WriteSocketService"),
    ("ha.halts", "broadcast", 1, "HAClient", "LogTruncationService"),
    ("ha.masters", "latest", 1, "BrokerRegistrationService", "HAClient"),
    ("store.allocate_requests", "latest", 1, "MessageStore", "AllocateMappedFileService"),
    ("store.commit_requests", "latest", 1, "MessageStore", "CommitRealTimeService"),
    ("store.delayed", "broadcast", 1, "MessageStore", "ScheduleMessageService"),
    ("store.dispatched", "broadcast", 1, "ReputMessageService", "FlushConsumeQueueService, PullRequestHoldService"),
    (
        "store.flush_outcomes",
        "broadcast",
        1,
        "GroupCommitService or FlushRealTimeService",
        "PutCompletionService, FlushConsumeQueueService; SYNC_FLUSH: WriteSocketService, HAClient, ReputMessageService",
    ),
    ("store.flush_requests", "latest", 1, "MessageStore", "GroupCommitService or FlushRealTimeService"),
    (
        "store.log_end",
        "broadcast",
        1,
        "MessageStore",
        "WriteSocketService and ReputMessageService (every flush mode but SYNC_FLUSH)",
    ),
    ("store.log_min", "broadcast", 1, "CleanCommitLogService", "CleanConsumeQueueService"),
}


def declared() -> set[Row]:
    for module in pkgutil.walk_packages([str(PACKAGE)], "rmq_actors."):
        if not module.name.startswith(WITHOUT_ACTORS):
            importlib.import_module(module.name)
    return {(spec.name, spec.policy, spec.capacity, spec.sender, spec.receiver) for spec in CHANNELS.values()}


def documented() -> set[Row]:
    text = ARCHITECTURE.read_text()
    table = text.split("<!-- channels:begin -->")[1].split("<!-- channels:end -->")[0]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.strip().splitlines()]
    assert rows[0] == ["channel", "policy", "capacity", "carries", "from", "to"]
    for name, _, _, carries, _, _ in rows[2:]:
        assert carries == CHANNELS[name].carries
    return {(name, policy, int(capacity), sender, receiver) for name, policy, capacity, _, sender, receiver in rows[2:]}


def test_the_channels_are_these() -> None:
    assert declared() == EXPECTED


def test_architecture_md_draws_them_all() -> None:
    assert declared() == documented()


def test_no_package_without_actors_declares_a_channel() -> None:
    """They are not imported above: their sources must not say `declare(`."""
    names = {name.removeprefix("rmq_actors.") for name in WITHOUT_ACTORS}
    assert {where for where in users_of("declare") if where.split("/")[0] in names} == set()


def attribute_names(source: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.ImportFrom):
            yield from (alias.name for alias in node.names)


def users_of(name: str) -> set[str]:
    """The files of the package that use an attribute of this name, or import it."""
    return {
        str(path.relative_to(PACKAGE))
        for path in PACKAGE.rglob("*.py")
        if "golden" not in path.relative_to(PACKAGE).parts
        and name in (text := path.read_text())
        and name in attribute_names(text)
    }


def test_memory_channels_are_opened_in_one_place() -> None:
    assert users_of("open_memory_channel") == {"actors/services/channels.py"}


def test_the_commit_log_has_one_writer() -> None:
    assert users_of("append_message") == {"store/puts/message_puts.py"}
    assert users_of("append_data") == {"store/message_store.py"}


def test_the_search_finds_both_ways_of_use() -> None:
    assert set(attribute_names("import trio\ntrio.open_memory_channel(0)")) == {"open_memory_channel"}
    assert set(attribute_names("from trio import open_memory_channel as o")) == {"open_memory_channel"}
