"""The judge of topics that come and go says the same of small histories as a look at all of the history does."""

from __future__ import annotations

from collections.abc import Sequence

import attrs
from hypothesis import given
from hypothesis import strategies as st

from rmq_actors.testing.invariants import TopicLives
from rmq_actors.tracing.events.broker import BrokerSlaveSynchronize
from rmq_actors.tracing.events.run import ClientTopic, ClientTopicRead, OperatorPromote
from rmq_actors.tracing.events.store import LogAppend
from tests.property.told_histories import NODES, Act, Step, Telling, numbers_in, record_begins
from tests.worlds.cluster_story import MASTER
from tests.worlds.topic_story import ask, serve, topic_record

Steps = Sequence[Step]


@attrs.define(eq=False)
class Living(Telling):
    """Also: a topic is filled, deleted and read, and slaves take over what became of it."""

    def act(self, act: Act) -> None:
        name, who, much = act
        getattr(self, name)(who, much)

    def fill(self, _: int, much: int) -> None:
        """A message of the topic that counts on, or is number 0."""
        numbers = numbers_in(bytes(self.logs[self.master]))
        self.append(self.master, topic_record(numbers[-1] + 1 if numbers and much % 2 else 0))

    def delete(self, _: int, much: int) -> None:
        """It is deleted at the master, or at another broker that still thinks that it is one."""
        ask(self, "delete", node=self.master if much % 8 else self.slaves[0])

    def follow(self, who: int, _: int) -> None:
        """A slave takes over the topics of the master."""
        self.take_table(self.slaves[who % 2], set(), of=f"10.0.0.{1 + NODES.index(self.master)}")

    def read(self, who: int, much: int) -> None:
        """A consumer gets a message of a broker."""
        node = NODES[who % 3]
        begins = record_begins(bytes(self.logs[node]))
        if begins:
            serve(self, 0, begins[much % len(begins)], node)


def latest(steps: Steps, at: int, node: str) -> int | None:
    """The step of the last deletion that the node must know of, before a step."""
    if at == 0:
        return None
    before, event = at - 1, steps[at - 1].event
    mine = latest(steps, before, node)
    if isinstance(event, OperatorPromote):
        return mine if mine == latest(steps, before, event.node) else None
    if isinstance(event, ClientTopic) and event.status == "SUCCESS" and event.node == node == master_at(steps, before):
        return before
    if isinstance(event, BrokerSlaveSynchronize) and event.node == node:
        masters = latest(steps, before, master_at(steps, before))
        return masters if masters is not None and masters == told_before(steps, before, node) else mine
    return mine


def told_before(steps: Steps, at: int, node: str) -> int | None:
    """What its master knew when the node asked the last time, if that was this master."""
    for number in reversed(range(at)):
        event = steps[number].event
        if isinstance(event, OperatorPromote):
            return None
        if isinstance(event, BrokerSlaveSynchronize) and event.node == node:
            return latest(steps, number, master_at(steps, number))
    return None


def master_at(steps: Steps, at: int) -> str:
    promoted = [step.event.node for step in steps[:at] if isinstance(step.event, OperatorPromote)]
    return promoted[-1] if promoted else MASTER


def floor_of(steps: Steps, deletion: int, at: int) -> int:
    """Before where nothing counts: the log's end then, or that of a shorter log that came after."""
    ends = [len(steps[deletion].logs[steps[deletion].event.node])]
    ends += [len(step.logs[step.event.node]) for step in steps[deletion:at] if isinstance(step.event, OperatorPromote)]
    return min(ends)


def is_broken(steps: Steps, at: int) -> bool:
    event = steps[at].event
    if isinstance(event, ClientTopicRead):
        known = latest(steps, at, event.node)
        return known is not None and event.offset < floor_of(steps, known, at)
    master = master_at(steps, at)
    if not isinstance(event, LogAppend) or event.node != master:
        return False
    known = latest(steps, at, master)
    asked = [n for n, step in enumerate(steps[:at]) if isinstance(step.event, ClientTopic)]
    if known is None or known != asked[-1]:
        return False
    *before, number = numbers_in(steps[at].logs[master][floor_of(steps, known, at) :])
    return number != (before[-1] + 1 if before else 0)


NAMES = ("fill", "fill", "delete", "follow", "follow", "copy_all", "copy_all", "read", "lead")


@given(st.lists(st.tuples(st.sampled_from(NAMES), st.integers(0, 15), st.integers(0, 15)), max_size=16))
def test_it_is_broken_at_the_same_step(history: list[Act]) -> None:
    story = Living(takes_parts=False)
    story.watch(TopicLives)
    story.steps.clear()
    story.act(("lead", 0, 1))
    for act in history:
        story.act(act)
    broken = [
        number for number, step in enumerate(story.steps) if story.broken and step.event.seq == story.broken[0].seq
    ]
    assert broken == [number for number in range(len(story.steps)) if is_broken(story.steps, number)][:1]
