"""Verdicts on requests: RocketMQ's own for its own accounts, and what must hold for any."""

from __future__ import annotations

import enum
import json
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmq_actors.protocols.plain_access import (
    ADMIN_CODES,
    AclException,
    Permission,
    PlainAccessResource,
    PlainAccessRules,
    needed_permissions,
    retry_topic,
    rule_of,
)
from rmq_actors.protocols.remote_address import remote_address_strategy
from rmq_actors.wire import request_code
from rmq_actors.wire.acl_signature import SessionCredentials, sign_command
from rmq_actors.wire.remoting_command import RemotingCommand
from rmq_actors.wire.request_code import OwnRequestCode, RequestCode, RequestCode5, RequestCode497
from tests.worlds.acl_test_data import command_of, rules, vectors

PEER = "172.16.0.1:45678"
ALICE = PlainAccessResource("alice-key", "alice-secret")
DENY, PUB, SUB = Permission.DENY, Permission.PUB, Permission.SUB

#: What RocketMQ 4.9 lets around its rules and 5.3 does not, and replies.
STRICTER = {
    RequestCode.UPDATE_AND_CREATE_ACL_CONFIG,
    RequestCode.DELETE_ACL_CONFIG,
    RequestCode.GET_BROKER_CLUSTER_ACL_INFO,
    RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG,
    RequestCode.SEND_BATCH_MESSAGE,
    RequestCode.SEND_REPLY_MESSAGE,
    RequestCode.SEND_REPLY_MESSAGE_V2,
    RequestCode.QUERY_CONSUMER_OFFSET,
    RequestCode.LOCK_BATCH_MQ,
    RequestCode.UNLOCK_BATCH_MQ,
    RequestCode.GET_MAX_OFFSET,
    RequestCode.GET_MIN_OFFSET,
    RequestCode.SEARCH_OFFSET_BY_TIMESTAMP,
    RequestCode.GET_EARLIEST_MSG_STORETIME,
    RequestCode.GET_TOPIC_STATS_INFO,
    RequestCode.QUERY_TOPIC_CONSUME_BY_WHO,
    RequestCode.GET_CONSUME_STATS,
    RequestCode.GET_BROKER_CONSUME_STATS,
    RequestCode.GET_ALL_PRODUCER_INFO,
    RequestCode.QUERY_CONSUME_TIME_SPAN,
    RequestCode.QUERY_CORRECTION_OFFSET,
    RequestCode.CLONE_GROUP_OFFSET,
    RequestCode.GET_CONSUMER_CONNECTION_LIST,
    RequestCode.GET_CONSUMER_RUNNING_INFO,
    RequestCode.CONSUME_MESSAGE_DIRECTLY,
    RequestCode.INVOKE_BROKER_TO_RESET_OFFSET,
    RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS,
}
#: Of several resources that are denied, the first of a hash map is named.
SEVERAL = {RequestCode.PULL_MESSAGE, RequestCode.HEART_BEAT, RequestCode.UPDATE_CONSUMER_OFFSET}


def verdict(rules: PlainAccessRules, command: RemotingCommand, peer: str = PEER) -> str:
    try:
        rules.validate(peer, command)
    except AclException as error:
        return str(error)
    return ""


def signed(account: PlainAccessResource, code: int, fields: dict[str, str], body: bytes = b"") -> RemotingCommand:
    command = RemotingCommand(code, dict(fields), body=body)
    sign_command(command, SessionCredentials(account.access_key, account.secret_key))
    return command


def verdict_for(account: PlainAccessResource, code: int, fields: dict[str, str], body: bytes = b"") -> str:
    return verdict(PlainAccessRules({account.access_key: account}), signed(account, code, fields, body))


def is_ours_alone(vector: dict[str, Any]) -> bool:
    fields = vector["ext_fields"]
    to_retry_topic = fields.get("b", fields.get("topic", "")).startswith("%RETRY%")
    return vector["code"] in STRICTER or to_retry_topic or "_UNIQUE_KEY_QUERY" in fields


def test_the_verdicts_are_rocketmqs() -> None:
    compared = different = 0
    for vector in vectors("verdicts"):
        if is_ours_alone(vector):
            continue
        compared += 1
        ours, theirs = verdict(rules(), command_of(vector), vector["address"]), vector["verdict"]
        if vector["code"] in SEVERAL and theirs.startswith("No default permission"):
            ours, theirs = ours.partition(" for ")[0], theirs.partition(" for ")[0]
        assert ours == theirs, vector
        different += bool(ours)
    assert compared > 800
    assert different > 300


@pytest.mark.parametrize("code", [RequestCode.SEND_BATCH_MESSAGE, RequestCode.SEND_MESSAGE_V2])
def test_a_batch_needs_what_a_send_needs(code: int) -> None:
    account = attrs.evolve(ALICE, resource_perms={"topicA": PUB, "topicB": SUB})
    assert verdict_for(account, code, {"b": "topicA", "a": "PID"}) == ""
    assert verdict_for(account, code, {"b": "topicB", "a": "PID"}) == "No default permission for topic:topicB"


@pytest.mark.parametrize(("code", "group_field", "topic_field"), [(10, "producerGroup", "topic"), (310, "a", "b")])
def test_a_retry_topic_is_its_own_groups_whatever_group_is_named(code: int, group_field: str, topic_field: str) -> None:
    """RocketMQ 4.9 looks at the group alone: whoever has one may write to the retry topics of all."""
    account = attrs.evolve(ALICE, default_topic_perm=PUB | SUB, resource_perms={retry_topic("mine"): SUB})
    for group in ("mine", "CLIENT_INNER_PRODUCER"):
        assert verdict_for(account, code, {topic_field: "%RETRY%mine", group_field: group}) == ""
        assert (
            verdict_for(account, code, {topic_field: "%RETRY%theirs", group_field: group})
            == "No default permission for group:theirs"
        )


@pytest.mark.parametrize(("code", "field"), [(324, "topic"), (325, "b")])
def test_a_reply_is_no_way_around_the_rules_of_sends(code: int, field: str) -> None:
    assert verdict_for(ALICE, code, {field: "DefaultCluster_REPLY_TOPIC"}) == ""
    assert verdict_for(ALICE, code, {field: "topicA"}) == "No default permission for topic:topicA"
    assert verdict_for(attrs.evolve(ALICE, default_topic_perm=PUB), code, {field: "topicA"}) == ""


@pytest.mark.parametrize("code", sorted(ADMIN_CODES))
def test_accounts_and_topics_are_changed_by_administrators(code: int) -> None:
    needed = f"Need admin permission for request code={code}, but accessKey=alice-key is not"
    assert verdict_for(ALICE, code, {"topic": "topicA"}) == needed
    assert verdict_for(attrs.evolve(ALICE, admin=True), code, {"topic": "topicA"}) == ""


@pytest.mark.parametrize(
    ("code", "fields", "needed"),
    [
        (RequestCode.QUERY_CONSUMER_OFFSET, {"consumerGroup": "G", "topic": "T"}, {"T": SUB, retry_topic("G"): SUB}),
        (RequestCode.GET_CONSUME_STATS, {"consumerGroup": "G", "topic": ""}, {retry_topic("G"): SUB}),
        (RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, {"group": "G", "topic": "T"}, {"T": SUB, retry_topic("G"): SUB}),
        (RequestCode.CONSUME_MESSAGE_DIRECTLY, {"consumerGroup": "G"}, {retry_topic("G"): SUB}),
        (RequestCode.GET_CONSUMER_CONNECTION_LIST, {"consumerGroup": "G"}, {retry_topic("G"): SUB}),
        (
            RequestCode.CLONE_GROUP_OFFSET,
            {"srcGroup": "A", "destGroup": "B"},
            {retry_topic("A"): SUB, retry_topic("B"): SUB},
        ),
        (RequestCode.GET_TOPIC_STATS_INFO, {"topic": "T"}, {"T": PUB | SUB}),
        (RequestCode.GET_MAX_OFFSET, {"topic": "T"}, {"T": PUB | SUB}),
    ],
)
def test_what_tools_ask_needs_the_topics_and_groups_that_it_is_about(
    code: int, fields: dict[str, str], needed: dict[str, Permission]
) -> None:
    assert needed_permissions(RemotingCommand(code, fields)) == needed


def test_a_lock_needs_every_topic_and_the_group() -> None:
    body = b'{"clientId":"c","consumerGroup":"G","mqSet":[{"brokerName":"b","queueId":0,"topic":"T"}]}'
    for code in (RequestCode.LOCK_BATCH_MQ, RequestCode.UNLOCK_BATCH_MQ):
        assert needed_permissions(RemotingCommand(code, body=body)) == {"T": SUB, retry_topic("G"): SUB}
        with pytest.raises(AclException):
            needed_permissions(RemotingCommand(code, body=b"no locks"))


def test_who_may_send_or_receive_may_look_at_a_topics_bounds() -> None:
    for owned, is_allowed in ((PUB, True), (SUB, True), (DENY, False)):
        account = attrs.evolve(ALICE, resource_perms={"T": owned})
        assert (verdict_for(account, RequestCode.GET_MIN_OFFSET, {"topic": "T", "queueId": "0"}) == "") is is_allowed


def test_traces_may_be_left_by_every_account_but_read_by_none() -> None:
    fields = {"b": "RMQ_SYS_TRACE_TOPIC", "topic": "RMQ_SYS_TRACE_TOPIC"}
    assert verdict_for(ALICE, RequestCode.SEND_MESSAGE_V2, fields) == ""
    assert (
        verdict_for(ALICE, RequestCode.QUERY_MESSAGE, fields) == "No default permission for topic:RMQ_SYS_TRACE_TOPIC"
    )


@given(
    code=st.sampled_from([*RequestCode, 9999]),
    fields=st.dictionaries(st.sampled_from(["topic", "b", "group", "consumerGroup", "a"]), st.text(max_size=8)),
)
def test_a_request_without_an_account_is_refused(code: int, fields: dict[str, str]) -> None:
    """Whatever it asks for: also what needs no permission."""
    everybody_elses = PlainAccessRules({ALICE.access_key: attrs.evolve(ALICE, admin=True)})
    assert verdict(everybody_elses, RemotingCommand(code, fields)) == "No accessKey is configured"
    assert verdict(everybody_elses, RemotingCommand(code, None)) == "No accessKey is configured"
    mallory = PlainAccessResource("mallory", "mallory-secret")
    assert verdict(everybody_elses, signed(mallory, code, fields)) == "No acl config for mallory"
    impostor = attrs.evolve(ALICE, secret_key="guessed")
    assert verdict(everybody_elses, signed(impostor, code, fields)) == "Check signature failed for accessKey=alice-key"


@given(
    needed=st.sampled_from([PUB, SUB]),
    owned=st.builds(Permission, st.integers(0, 15).map(lambda bits: bits & (DENY | PUB | SUB))),
)
def test_deny_outweighs(needed: Permission, owned: Permission) -> None:
    assert owned.allows(needed) == (needed in owned and DENY not in owned)


@given(
    owned=st.sampled_from([DENY, PUB, SUB, PUB | SUB]),
    default=st.sampled_from([DENY, PUB, SUB, PUB | SUB]),
    topic=st.sampled_from(["topicA", "topicB"]),
)
def test_what_is_said_of_a_topic_counts_before_the_default(owned: Permission, default: Permission, topic: str) -> None:
    account = attrs.evolve(ALICE, default_topic_perm=default, resource_perms={"topicA": owned})
    allowed = (owned if topic == "topicA" else default).allows(PUB)
    assert (verdict_for(account, RequestCode.SEND_MESSAGE_V2, {"b": topic}) == "") == allowed


def test_a_topic_and_a_group_of_one_name_are_two_things() -> None:
    account = attrs.evolve(ALICE, resource_perms={"same": PUB | SUB, retry_topic("same"): DENY})
    fields = {"topic": "same", "consumerGroup": "same"}
    assert verdict_for(account, RequestCode.PULL_MESSAGE, fields) == "No default permission for group:same"


def test_white_lists_stand_before_accounts_and_for_signatures() -> None:
    here, elsewhere = remote_address_strategy("172.16.0.*"), remote_address_strategy("10.0.0.1")
    assert here is not None
    assert elsewhere is not None
    unsigned = RemotingCommand(RequestCode.DELETE_TOPIC_IN_BROKER, {"AccessKey": ALICE.access_key})
    nobody = RemotingCommand(RequestCode.DELETE_TOPIC_IN_BROKER)
    assert verdict(PlainAccessRules({}, [elsewhere, here]), nobody) == ""
    assert verdict(PlainAccessRules({}, [elsewhere]), nobody) == "No accessKey is configured"
    at_home = PlainAccessRules({ALICE.access_key: attrs.evolve(ALICE, white_remote_address=here)})
    assert verdict(at_home, unsigned) == ""
    assert verdict(at_home, unsigned, "172.17.0.1:1") == "Check signature failed for accessKey=alice-key"
    assert verdict(at_home, nobody) == "No accessKey is configured"


def test_a_neighbour_of_who_is_on_the_white_list_is_not_on_it() -> None:
    strategy = remote_address_strategy("172.16.0.1")
    assert strategy is not None
    rules = PlainAccessRules({ALICE.access_key: attrs.evolve(ALICE, white_remote_address=strategy)}, [strategy])
    unsigned = RemotingCommand(RequestCode.PULL_MESSAGE, {"AccessKey": ALICE.access_key})
    assert verdict(rules, unsigned, "172.16.0.1:10") == ""
    assert verdict(rules, unsigned, "172.16.0.10:1") == "Check signature failed for accessKey=alice-key"


@pytest.mark.parametrize("peer", ["[2001:db8::1]:80", "2001:db8::1:80", "2001:db8:0:0:0:0:0:1:80"])
def test_the_port_is_no_part_of_an_ipv6_address(peer: str) -> None:
    strategy = remote_address_strategy("2001:db8::1")
    assert strategy is not None
    assert verdict(PlainAccessRules({}, [strategy]), RemotingCommand(11), peer) == ""
    assert verdict(PlainAccessRules({}, [strategy]), RemotingCommand(11), peer.replace("db8", "db9")) != ""


def test_a_heartbeat_needs_every_group_and_topic_in_it() -> None:
    def heartbeat(group: str, *topics: str) -> bytes:
        subscriptions = [{"topic": topic, "subString": "*"} for topic in topics]
        consumer = {"groupName": group, "subscriptionDataSet": subscriptions}
        return json.dumps({"clientID": "c", "consumerDataSet": [consumer], "producerDataSet": []}).encode()

    account = attrs.evolve(ALICE, resource_perms={"topicA": SUB, "topicB": PUB, retry_topic("groupA"): SUB})
    code = RequestCode.HEART_BEAT
    assert verdict_for(account, code, {}, heartbeat("groupA", "topicA")) == ""
    assert verdict_for(account, code, {}, heartbeat("groupA", "topicA", "topicB")) == (
        "No default permission for topic:topicB"
    )
    assert verdict_for(account, code, {}, heartbeat("groupB", "topicA")) == "No default permission for group:groupB"
    assert verdict_for(account, code, {}, b"{").startswith("HeartbeatData")


def test_texts_of_a_peer_are_cut() -> None:
    """They go into answers and logs."""
    long = "x" * 1_000_000
    assert len(verdict_for(PlainAccessResource("alice-key", "alice-secret"), 310, {"b": long})) < 200
    assert len(verdict(PlainAccessRules(), RemotingCommand(310, {"AccessKey": long}))) < 200


def test_an_unknown_code_needs_an_account_and_nothing_else() -> None:
    assert needed_permissions(RemotingCommand(9999, {"topic": "topicA"})) == {}
    assert verdict_for(ALICE, 9999, {"topic": "topicA"}) == ""


def test_secrets_are_not_shown() -> None:
    assert "alice-secret" not in repr(PlainAccessRules({ALICE.access_key: ALICE}))


#: What every account may ask. The rest are requests about topics and groups, and those of administrators.
ACCOUNTS_ALONE = {
    # What it is about shows in what is found: the processors ask for PUB or SUB of the message's topic.
    *("VIEW_MESSAGE_BY_ID", "END_TRANSACTION"),
    # What all clients, slaves and mqadmin look at.
    *("GET_ALL_TOPIC_CONFIG", "GET_ALL_CONSUMER_OFFSET"),
    *("GET_ALL_DELAY_OFFSET", "GET_ALL_SUBSCRIPTIONGROUP_CONFIG", "GET_BROKER_CONFIG", "GET_BROKER_RUNTIME_INFO"),
    *("CHECK_CLIENT_CONFIG", "GET_SYSTEM_TOPIC_LIST_FROM_BROKER", "GET_PRODUCER_CONNECTION_LIST"),
    # Clients are asked these, or told.
    *("CHECK_TRANSACTION_STATE", "NOTIFY_CONSUMER_IDS_CHANGED", "RESET_CONSUMER_CLIENT_OFFSET"),
    *("GET_CONSUMER_STATUS_FROM_CLIENT", "PUSH_REPLY_MESSAGE_TO_CLIENT"),
    # What a broker's slaves and its operators look at.
    *("GET_BROKER_HA_STATUS", "GET_REPLICATION_STATE", "GET_EXCHANGE", "GET_DELETED_TOPICS", "GET_BROKER_CENSUS"),
}
ALL_CODES = [*RequestCode, *RequestCode497, *RequestCode5, *OwnRequestCode]
#: A name server is asked these, and those that no broker answers.
NOT_OF_BROKERS = {
    code.name
    for code in RequestCode
    if code in {13, 22, 23, 27, *range(100, 108), 205, 206, *range(209, 215), *range(216, 220), 224, 301, 302, 304}
    or code in {311, 312, 313, 318, 319, 322, 327}
}


def test_every_request_of_a_broker_has_its_rule() -> None:
    """A new code fails here until somebody has decided who may ask."""
    found = {code.name for code in ALL_CODES if rule_of(code) == "account"} - NOT_OF_BROKERS
    assert found == ACCOUNTS_ALONE


def test_the_table_of_codes_is_whole() -> None:
    """An enum of codes that is added to the module, and not to the test above, would have no rule and no test."""
    enums = {each for each in vars(request_code).values() if isinstance(each, type) and each.__name__ != "IntEnum"}
    codes = {code for each in enums if issubclass(each, enum.IntEnum) for code in each}
    assert codes == set(ALL_CODES)


@pytest.mark.parametrize(
    ("code", "rule"),
    [
        (RequestCode.QUERY_CONSUMER_OFFSET, "topics and groups"),
        (RequestCode.LOCK_BATCH_MQ, "topics and groups"),
        (RequestCode.UNLOCK_BATCH_MQ, "topics and groups"),
        (RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, "topics and groups"),
        (RequestCode.VIEW_BROKER_STATS_DATA, "topics and groups"),
        (RequestCode.QUERY_CONSUME_QUEUE, "topics and groups"),
        (RequestCode.DELETE_TOPIC_IN_BROKER, "administrator"),
        (RequestCode.CLEAN_UNUSED_TOPIC, "administrator"),
        (RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE, "administrator"),
        (RequestCode.DELETE_EXPIRED_COMMITLOG, "administrator"),
    ],
)
def test_what_a_request_needs_beside_an_account(code: int, rule: str) -> None:
    assert rule_of(code) == rule


def test_statistics_are_for_who_uses_the_topic() -> None:
    def needed(name: str, key: str) -> dict[str, Permission]:
        return needed_permissions(
            RemotingCommand(RequestCode.VIEW_BROKER_STATS_DATA, {"statsName": name, "statsKey": key})
        )

    assert needed("TOPIC_PUT_NUMS", "T") == {"T": PUB | SUB}
    assert needed("GROUP_GET_NUMS", "T@G") == {"T": PUB | SUB, retry_topic("G"): SUB}
    assert needed("BROKER_PUT_NUMS", "Cluster") == {}
