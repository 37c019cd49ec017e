"""Operators look at a broker's accounts and change them: what holds at once, what is written, and what is refused."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Awaitable, Callable

import msgspec
import pytest

from rmq_actors.remoting.plain_acl_file import parse_plain_acl
from rmq_actors.wire.acl_signature import SessionCredentials
from rmq_actors.wire.bodies.decoding import decode_body
from rmq_actors.wire.bodies.plain_access import GetBrokerClusterAclConfigResponseBody, PlainAccessConfig
from rmq_actors.wire.bodies.topic_configs import DataVersion
from rmq_actors.wire.headers import decode_header
from rmq_actors.wire.headers.admin import GetBrokerAclConfigResponseHeader
from rmq_actors.wire.remoting_command import RemotingCommand
from rmq_actors.wire.request_code import RequestCode, RequestCode497
from rmq_actors.wire.response_code import ResponseCode
from sim_net import Node
from tests.simulation.test_broker_acl import ALICE, BOB, LISTEN_PORT, BrokerWorld, write_accounts

DEFAULT, FURTHER = "conf/plain_acl.yml", "conf/acl/further.yml"
UPDATE, DELETE = RequestCode.UPDATE_AND_CREATE_ACL_CONFIG, RequestCode.DELETE_ACL_CONFIG
WHITE, VERSION = RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG, RequestCode.GET_BROKER_CLUSTER_ACL_INFO
SHOW = RequestCode497.GET_BROKER_CLUSTER_ACL_CONFIG
CAROL = SessionCredentials("carol-key", "carol-secret")
#: Sends the administrator's request; the answer.
Ask = Callable[..., Awaitable[RemotingCommand]]


def run(use: Callable[[BrokerWorld, Ask], Awaitable[None]]) -> BrokerWorld:
    acl = BrokerWorld(acl_enable=True)
    write_accounts(acl.broker, DEFAULT, admins=[ALICE])
    write_accounts(acl.broker, FURTHER, BOB)

    async def ask(code: int, **fields: str) -> RemotingCommand:
        return await acl.ask(LISTEN_PORT, ALICE, code, b"", **fields)

    async def main(_: object) -> None:
        await use(acl, ask)

    acl.run(main)
    return acl


def text_of(node: Node, path: str) -> bytes:
    with contextlib.closing(node.disk.open(path, read_only=True)) as file:
        return bytes(file.map())


async def version(ask: Ask) -> dict[str, DataVersion]:
    answer = await ask(VERSION)
    header = decode_header(GetBrokerAclConfigResponseHeader, answer)
    assert (header.broker_name, header.cluster_name) == ("broker-a", "DefaultCluster")
    assert header.broker_addr.endswith(f":{LISTEN_PORT}")
    assert header.all_acl_file_version is not None
    versions = msgspec.json.decode(header.all_acl_file_version, type=dict[str, DataVersion])
    assert versions[f"/{DEFAULT}"] == decode_body(DataVersion, header.version.encode())
    return versions


def test_an_account_that_is_made_may_do_at_once_what_it_may_and_one_that_is_deleted_nothing() -> None:
    async def use(acl: BrokerWorld, ask: Ask) -> None:
        made = {"accessKey": CAROL.access_key, "secretKey": CAROL.secret_key, "topicPerms": "A=PUB,B=PUB|SUB"}
        assert (await ask(UPDATE, **made, admin="false", defaultGroupPerm="SUB")).code == ResponseCode.SUCCESS
        assert await acl.call(LISTEN_PORT, CAROL) == ResponseCode.QUERY_NOT_FOUND
        body = decode_body(GetBrokerClusterAclConfigResponseBody, (await ask(SHOW)).body)
        assert body.global_white_addrs == []
        assert {one.access_key: one.admin for one in body.plain_access_configs} == {
            "alice-key": True,
            "bob-key": False,
            "carol-key": False,
        }
        assert body.plain_access_configs[-1] == PlainAccessConfig(
            access_key="carol-key", topic_perms=["A=PUB", "B=PUB|SUB"], default_group_perm="SUB"
        )
        assert [each.counter for each in (await version(ask)).values()] == [0, 1]
        assert (await ask(DELETE, accessKey=CAROL.access_key)).code == ResponseCode.SUCCESS
        assert await acl.call(LISTEN_PORT, CAROL) == ResponseCode.SYSTEM_ERROR

    acl = run(use)
    assert b"carol" not in text_of(acl.broker, DEFAULT)


def test_an_account_is_changed_in_its_own_file_and_keeps_what_is_not_said() -> None:
    async def use(acl: BrokerWorld, ask: Ask) -> None:
        changed = SessionCredentials(BOB.access_key, "another secret")
        fields = {"accessKey": BOB.access_key, "secretKey": changed.secret_key, "admin": "false"}
        assert (await ask(UPDATE, **fields, topicPerms="T=SUB")).code == ResponseCode.SUCCESS
        assert (await ask(UPDATE, **fields, groupPerms="G=SUB")).code == ResponseCode.SUCCESS
        assert await acl.call(LISTEN_PORT, changed) == ResponseCode.QUERY_NOT_FOUND
        assert await acl.call(LISTEN_PORT, BOB) == ResponseCode.SYSTEM_ERROR
        assert [each.counter for each in (await version(ask)).values()] == [2, 0]

    acl = run(use)
    accounts = parse_plain_acl({FURTHER: text_of(acl.broker, FURTHER)}).accounts
    assert {*accounts[BOB.access_key].resource_perms} == {"T", "%RETRY%G"}


def test_addresses_that_need_no_account_are_set_in_the_file_that_is_named() -> None:
    async def use(acl: BrokerWorld, ask: Ask) -> None:
        address = acl.client.address
        for named in ({}, {"aclFileFullPath": f"/{FURTHER}"}):
            answer = await ask(WHITE, globalWhiteAddrs=f"{address},10.0.0.*", **named)
            assert answer.code == ResponseCode.SUCCESS, answer.remark
        assert await acl.call(LISTEN_PORT, None) == ResponseCode.QUERY_NOT_FOUND
        body = decode_body(GetBrokerClusterAclConfigResponseBody, (await ask(SHOW)).body)
        assert body.global_white_addrs == [address, "10.0.0.*"] * 2

    run(use)


@pytest.mark.parametrize(
    ("code", "fields", "failed", "why"),
    [
        (UPDATE, {"accessKey": "short", "secretKey": "long enough"}, 209, "accessKey: 5 characters"),
        (UPDATE, {"accessKey": "carol-key", "secretKey": "short"}, 209, "secretKey: 5 characters"),
        (UPDATE, {"accessKey": "carol-key"}, 209, "a secretKey is needed"),
        (UPDATE, {"accessKey": "carol-key", "secretKey": "long enough", "topicPerms": "T"}, 209, "name=permission"),
        (UPDATE, {"accessKey": "carol-key", "secretKey": "long enough", "topicPerms": "T=ALL"}, 209, "'ALL'"),
        (DELETE, {"accessKey": "carol-key"}, 210, r"The accesskey\[carol-key\]"),
        (WHITE, {"globalWhiteAddrs": "10.0.0.x"}, 211, "10.0.0.x"),
        (WHITE, {"globalWhiteAddrs": "*", "aclFileFullPath": "/etc/passwd"}, 211, "not one of the files"),
        (WHITE, {"globalWhiteAddrs": "*", "aclFileFullPath": f"/conf/../{DEFAULT}"}, 211, "not one of the files"),
    ],
)
def test_what_cannot_be_used_is_refused_and_nothing_is_written(
    code: int, fields: dict[str, str], failed: int, why: str
) -> None:
    async def use(acl: BrokerWorld, ask: Ask) -> None:
        before = text_of(acl.broker, DEFAULT)
        answer = await ask(code, **fields)
        assert answer.code == failed
        assert answer.remark is not None
        assert re.search(why, answer.remark), answer.remark
        assert "long enough" not in answer.remark
        assert text_of(acl.broker, DEFAULT) == before

    run(use)


@pytest.mark.parametrize("code", [UPDATE, DELETE, WHITE, VERSION, SHOW])
def test_only_administrators_may_ask(code: int) -> None:
    async def use(acl: BrokerWorld, ask: Ask) -> None:
        fields = {"accessKey": BOB.access_key, "secretKey": "long enough", "admin": "true", "globalWhiteAddrs": "*"}
        answer = await acl.ask(LISTEN_PORT, BOB, code, b"", **fields)
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert answer.remark is not None
        assert "Need admin permission" in answer.remark

    run(use)
