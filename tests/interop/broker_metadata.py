"""What a master keeps beside its log for its slaves: topics, groups, offsets of consumers and of delayed messages."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rmq_actors.wire.dispatch_request import SCHEDULE_TOPIC
from rmq_actors.wire.request_code import RequestCode
from tests.interop.same_logs import wait_for_same
from tests.worlds.java_broker import JavaBroker
from tests.worlds.java_client import SUCCESS, JavaClient
from tests.worlds.own_broker import OwnBroker

#: By the name of its file below config/: what a slave asks for, and what of the answer 4.9 knows.
KINDS = {
    "topics": (RequestCode.GET_ALL_TOPIC_CONFIG, ("topicConfigTable", "dataVersion")),
    "consumerOffset": (RequestCode.GET_ALL_CONSUMER_OFFSET, ("offsetTable",)),
    "delayOffset": (RequestCode.GET_ALL_DELAY_OFFSET, ("offsetTable",)),
    "subscriptionGroup": (
        RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
        ("subscriptionGroupTable", "dataVersion"),
    ),
}
#: What RocketMQ 5 writes beside what 4.9 knows, in a topic, a group or a DataVersion.
_ONLY_IN_5 = {
    "attributes",
    "consumeMessageOrderly",
    "consumeTimeoutMinute",
    "forbiddenTable",
    "groupRetryPolicy",
    "groupSysFlag",
    "groupTopicMap",
    "stateVersion",
    "subscriptionDataSet",
}
#: The group of the first step: RocketMQ 5 takes no offset of a group that is not there.
_GROUP = "GroupOfStep1"

Broker = JavaBroker | OwnBroker


def parse_metadata(text: str) -> Any:
    """What fastjson writes, integer keys as text, without what RocketMQ 5 adds. Raises `ValueError`."""
    return _of_4(json.loads(re.sub(r"([{,]\s*)(-?\d+)\s*:", r'\1"\2":', text)))


def _of_4(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    return {name: _of_4(item) for name, item in value.items() if name not in _ONLY_IN_5}


def metadata_told(broker: Broker) -> dict[str, dict[str, Any]]:
    """What a broker answers its slaves."""
    told = {}
    with JavaClient.connect(broker.listen_port) as client:
        for name, (code, members) in KINDS.items():
            response = client.call(code, {})
            assert response.code == SUCCESS, (name, response)
            value = parse_metadata(response.body.decode())
            told[name] = {member: value[member] for member in members}
    return told


def metadata_in_files(store: Path) -> dict[str, dict[str, Any]]:
    """What a broker has stored: {} for what is not there, or half there."""
    stored = {}
    for name, (_, members) in KINDS.items():
        path = store / "config" / f"{name}.json"
        try:
            value = parse_metadata(path.read_text())
        except (FileNotFoundError, ValueError):
            value = {}
        stored[name] = {member: value[member] for member in members if member in value}
    return stored


def _differences(where: str, told: Any, stored: Any) -> Iterator[str]:
    if isinstance(told, dict) and isinstance(stored, dict):
        for name in sorted(told.keys() | stored.keys()):
            yield from _differences(f"{where}/{name}", told.get(name), stored.get(name))
    elif told != stored:
        yield f"{where}: the master tells {told}, the slave has stored {stored}"


def change_metadata(master: Broker, topic: str, step: int) -> None:
    """A topic more, a group more, and offsets that go on: those of a consumer of `topic` and of delayed messages."""
    with JavaClient.connect(master.listen_port) as client:

        def call(code: RequestCode, fields: dict[str, object], body: bytes = b"") -> None:
            response = client.call(code, fields, body)
            assert response.code == SUCCESS, response

        call(
            RequestCode.UPDATE_AND_CREATE_TOPIC,
            {
                "topic": f"TopicOfStep{step}",
                "defaultTopic": "TBW102",
                "readQueueNums": 3,
                "writeQueueNums": 3,
                "perm": 6,
                "topicFilterType": "SINGLE_TAG",
                "topicSysFlag": 0,
                "order": "false",
            },
        )
        group = json.dumps({"groupName": f"GroupOfStep{step}", "retryMaxTimes": 5}).encode()
        call(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, group)
        offset = {"consumerGroup": _GROUP, "topic": topic, "queueId": 0, "commitOffset": step}
        call(RequestCode.UPDATE_CONSUMER_OFFSET, offset)
        if isinstance(master, OwnBroker):
            # It delivers no delayed messages yet: see `own_broker_process`.
            call(RequestCode.UPDATE_CONSUMER_OFFSET, {**offset, "topic": SCHEDULE_TOPIC})
        else:
            # Whether it waits for a slave in vain is another matter.
            client.send_message(topic, b"delayed", properties="DELAY\x011")


def wait_for_same_metadata(master: Broker, slave: Broker, topic: str, step: int) -> None:
    """Return when the slave has stored what the master answers, versions too, and that is of `step`."""

    def differs() -> str:
        told, stored = metadata_told(master), metadata_in_files(slave.store)
        different = list(_differences("", told, stored))
        offset = told["consumerOffset"]["offsetTable"].get(f"{topic}@{_GROUP}", {}).get("0")
        if offset != step:
            different.append(f"the master is at {offset}, not at {step}")
        # A master that was killed has what it stored when it was changed.
        for earlier in range(1, step + 1):
            topic_is_there = f"TopicOfStep{earlier}" in told["topics"]["topicConfigTable"]
            group_is_there = f"GroupOfStep{earlier}" in told["subscriptionGroup"]["subscriptionGroupTable"]
            if not topic_is_there or not group_is_there:
                different.append(f"the master lacks what step {earlier} has made: {told}")
        if not told["delayOffset"]["offsetTable"]:
            different.append(f"the master lacks offsets of delayed messages: {told}")
        return "\n".join(different)

    wait_for_same(master, slave, differs)
