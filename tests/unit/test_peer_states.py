"""What a broker's answers say of it: this project's, RocketMQ's, and none."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs
import pytest

from rmq_actors.broker.peer_states import PeerStates
from rmq_actors.ha.master_evidence import MasterQuestions, NotFollowed, TermNotKept
from rmq_actors.ha.master_record_lookup import LookupFailed, NoAnswer
from rmq_actors.protocols.evidence import Peer
from rmq_actors.protocols.term import Term
from rmq_actors.remoting.connection import RemotingSendRequestError, RemotingTimeoutError
from rmq_actors.store.files.term_file import TermFile
from rmq_actors.wire.bodies.encoding import encode_body
from rmq_actors.wire.bodies.replication_state import ReplicationStateInfo
from rmq_actors.wire.remoting_command import RemotingCommand
from rmq_actors.wire.request_code import OwnRequestCode, RequestCode
from rmq_actors.wire.response_code import ResponseCode
from tests.worlds.faulty_disk import FaultyDisk
from tests.worlds.recording import new_tracer

STATE, CONFIG = OwnRequestCode.GET_REPLICATION_STATE, RequestCode.GET_BROKER_CONFIG
SUCCESS = ResponseCode.SUCCESS
NOT_SUPPORTED = ResponseCode.REQUEST_CODE_NOT_SUPPORTED, b""


@attrs.define(eq=False)
class Client:
    """Answers each request code in its way, or fails."""

    answers: Mapping[int, tuple[int, bytes] | Exception]
    asked: list[int] = attrs.field(factory=list)

    async def invoke(self, address: str, command: RemotingCommand, timeout_ms: int) -> RemotingCommand:
        self.asked.append(command.code)
        answer = self.answers[command.code]
        if isinstance(answer, Exception):
            raise answer
        return command.response(answer[0], "why", body=answer[1])


def state(
    role: str, term: int, *, leads: bool = False, followed: bool = False, name: str | None = None
) -> tuple[int, bytes]:
    info = ReplicationStateInfo(broker_name=name, broker_role=role, term=term, leads_term=leads, followed=followed)
    return SUCCESS, encode_body(info)


async def ask(client: Any) -> Peer | None:
    return await PeerStates(client).ask("10.0.0.1:10911")


@pytest.mark.trio
@pytest.mark.parametrize(
    ("answer", "peer"),
    [
        (state("SYNC_MASTER", 4, leads=True), Peer(True, 4, True)),
        (state("ASYNC_MASTER", 4, leads=True), Peer(True, 4, True)),
        (state("SYNC_MASTER", 4, name="broker-b"), Peer(True, 4, name="broker-b")),
        (state("SLAVE", 4, leads=True), Peer(False, 4, True)),
        (state("SLAVE", 0, followed=True), Peer(False, 0, False, True)),
    ],
)
async def test_one_of_this_project_is_asked_once(answer: tuple[int, bytes], peer: Peer) -> None:
    client = Client({STATE: answer})
    assert await ask(client) == peer
    assert client.asked == [STATE]


@pytest.mark.trio
@pytest.mark.parametrize(
    ("body", "peer"),
    [
        (b"brokerId=0\nbrokerRole=SYNC_MASTER\n", Peer(True)),
        (b"brokerRole=ASYNC_MASTER\n", Peer(True)),
        (b"brokerName=broker-b\nbrokerRole=ASYNC_MASTER\n", Peer(True, name="broker-b")),
        (b"brokerRole=SLAVE\n", Peer(False)),
        (b"brokerId=0\n", None),
    ],
)
async def test_of_rocketmqs_own_the_configuration_tells(body: bytes, peer: Peer | None) -> None:
    client = Client({STATE: NOT_SUPPORTED, CONFIG: (SUCCESS, body)})
    assert await ask(client) == peer
    assert client.asked == [STATE, CONFIG]


@pytest.mark.trio
@pytest.mark.parametrize(
    "answers",
    [
        {STATE: NOT_SUPPORTED, CONFIG: NOT_SUPPORTED},
        {STATE: NOT_SUPPORTED, CONFIG: (ResponseCode.NO_PERMISSION, b"")},
        {STATE: (ResponseCode.SYSTEM_ERROR, b"")},
    ],
)
async def test_who_refuses_says_nothing_of_itself(answers: Mapping[int, tuple[int, bytes]]) -> None:
    assert await ask(Client(answers)) is None


@pytest.mark.trio
@pytest.mark.parametrize(
    ("answers", "why"),
    [
        ({STATE: (ResponseCode.SERVICE_NOT_AVAILABLE, b"")}, "answers 14: why"),
        ({STATE: state("KING", 4)}, "KING"),
        ({STATE: state("SLAVE", -1)}, "term -1"),
        ({STATE: state("SLAVE", 0, leads=True)}, "nobody leads term 0"),
        ({STATE: (SUCCESS, b"{}")}, "None is not a valid BrokerRole"),
        ({STATE: (SUCCESS, b"")}, "the body is empty"),
        ({STATE: NOT_SUPPORTED, CONFIG: (SUCCESS, b"brokerRole=KING\n")}, "KING"),
        ({STATE: NOT_SUPPORTED, CONFIG: (SUCCESS, b"\xff\n")}, "10.0.0.1:10911: "),
        ({STATE: RemotingSendRequestError("the connection ended")}, "the connection ended"),
        ({STATE: NOT_SUPPORTED, CONFIG: RemotingSendRequestError("the connection ended")}, "the connection ended"),
    ],
)
async def test_an_answer_that_makes_no_sense_is_a_failure(answers: Mapping[int, Any], why: str) -> None:
    with pytest.raises(LookupFailed, match=why):
        await ask(Client(answers))


@pytest.mark.trio
async def test_silence_is_told() -> None:
    with pytest.raises(NoAnswer):
        await ask(Client({STATE: RemotingTimeoutError("no answer")}))


# --- before and after a comparison ------------------------------------------------------------------------------------


@attrs.define(eq=False)
class Lookup:
    """Says of the peer one after the other of these."""

    peers: list[Peer | None]

    async def peer(self) -> Peer | None:
        return self.peers.pop(0)


async def questions(tmp_path: Path, *peers: Peer | None, disk: FaultyDisk | None = None) -> MasterQuestions:
    """Of a slave that has seen term 3."""
    (tmp_path / "config").mkdir()
    terms = TermFile.load(disk or FaultyDisk(tmp_path), new_tracer())
    await terms.see(3)
    lookup: Any = Lookup([*peers])
    return MasterQuestions(lookup, terms, "broker-a")


MASTER, SLAVE = Peer(True, 3, True), Peer(False, 3)


@pytest.mark.trio
@pytest.mark.parametrize(
    ("before", "after", "reason"),
    [
        (MASTER, MASTER, None),
        (SLAVE, SLAVE, "no_master"),
        (MASTER, SLAVE, "role_changed"),
        (MASTER, Peer(True, 4, True), "role_changed"),
        (Peer(True), Peer(True), None),
        (Peer(True), Peer(False), "role_changed"),
        (None, None, "no_master"),
    ],
)
async def test_a_difference_counts_if_the_peer_was_the_master_all_the_time(
    tmp_path: Path, before: Peer | None, after: Peer | None, reason: str | None
) -> None:
    evidence = await (await questions(tmp_path, before, after)).evidence()
    if reason is None:
        evidence.check_master("no record at 7")
        await evidence.confirm("no record at 7")
        return
    with pytest.raises(NotFollowed, match="no record at 7, which says nothing: ") as caught:
        await evidence.confirm("no record at 7")
    assert caught.value.reason == reason


@pytest.mark.trio
async def test_nobody_is_searched_for_a_common_end_who_is_no_master(tmp_path: Path) -> None:
    evidence = await (await questions(tmp_path, SLAVE)).evidence()
    with pytest.raises(NotFollowed):
        evidence.check_master("no record at 7")


@pytest.mark.trio
async def test_a_master_of_an_old_term_is_not_compared(tmp_path: Path) -> None:
    with pytest.raises(NotFollowed) as caught:
        await (await questions(tmp_path, Peer(True, 2, True))).evidence()
    assert caught.value.reason == "old_term"


@pytest.mark.trio
async def test_the_term_of_who_is_followed_is_kept_first(tmp_path: Path) -> None:
    disk = FaultyDisk(tmp_path)
    asks = await questions(tmp_path, Peer(True, 8, True), Peer(True), disk=disk)
    evidence = await asks.evidence()
    disk.failing_syncs = 1
    with pytest.raises(TermNotKept, match="the term 8 of the master cannot be kept: "):
        await evidence.keep_term()
    assert TermFile.load(disk, new_tracer()).term == Term(3)
    await evidence.keep_term()
    assert TermFile.load(disk, new_tracer()).term == Term(8)
    await (await asks.evidence()).keep_term()  # RocketMQ's has none
