"""Errands that run again in a topic that an operator has made: which failures they tell, at brokers of a script."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable
from types import SimpleNamespace
from typing import Any

import attrs
import pytest

from rmq_actors.remoting.connection import RemotingError
from rmq_actors.testing.errand import GivenUp, Visitor
from rmq_actors.testing.errands_of_settings import in_a_made_topic
from rmq_actors.testing.thin_client import ThinClient
from rmq_actors.wire.bodies.encoding import encode_body
from rmq_actors.wire.bodies.subscription_groups import SubscriptionGroupConfig, SubscriptionGroupWrapper
from rmq_actors.wire.remoting_command import RemotingCommand
from rmq_actors.wire.request_code import RequestCode
from rmq_actors.wire.response_code import ResponseCode

SLOW = "disableConsumeIfConsumerReadSlowly=true;consumerFallbehindThreshold=20000"
#: How a broker answers the question about groups.
Answer = Callable[[], bytes]


@attrs.define(eq=False, repr=False)
class ErrandOfAScript:
    """What an errand asks for, at a broker that makes each topic."""

    settings: str
    answer: Answer
    topic: str = "Errand-1"
    group: str = "GroupOfErrand-1"

    @property
    def brokers(self) -> Any:
        return SimpleNamespace(workload=SimpleNamespace(settings=self.settings))

    @contextlib.asynccontextmanager
    async def visitor(self) -> AsyncIterator[Visitor]:
        async def ask(request: RemotingCommand) -> RemotingCommand:
            asks_for_groups = request.code == RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG
            return RemotingCommand(ResponseCode.SUCCESS, body=self.answer() if asks_for_groups else b"")

        yield Visitor(ThinClient(ask, group=self.group))


def group(*, is_on: bool) -> Answer:
    one = SubscriptionGroupConfig(group_name="GroupOfErrand-1", consume_enable=is_on)
    return lambda: encode_body(SubscriptionGroupWrapper(subscription_group_table={one.group_name: one}))


def refuse() -> bytes:
    raise GivenUp


def say_nothing() -> bytes:
    raise RemotingError("no answer")


@pytest.mark.trio
@pytest.mark.parametrize(
    ("settings", "answer", "said"),
    [
        (SLOW, group(is_on=True), "wrong"),
        (SLOW, group(is_on=False), ""),
        ("haListenPort=20912", group(is_on=False), "wrong"),
        (SLOW, refuse, "wrong"),
        (SLOW, say_nothing, "wrong"),
    ],
)
async def test_only_a_group_that_a_setting_has_turned_off_excuses_what_is_wrong(
    settings: str, answer: Answer, said: str
) -> None:
    async def run(_: object) -> str:
        return "wrong"

    errand: Any = ErrandOfAScript(settings, answer)
    assert await in_a_made_topic(run)(errand) == said


@pytest.mark.trio
async def test_an_errand_that_finds_nothing_wrong_asks_nothing() -> None:
    async def run(_: object) -> str:
        return ""

    errand: Any = ErrandOfAScript(SLOW, refuse)
    assert await in_a_made_topic(run)(errand) == ""
