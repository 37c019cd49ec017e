"""Judge: the view goes first, an invariant sees its kinds alone, and after the first break nothing is said."""

from __future__ import annotations

import re
from typing import Any

import attrs

from rmq_actors.testing.invariants.invariant import Invariant, Limit
from rmq_actors.testing.judge import Broken, Judge
from rmq_actors.testing.view import ClusterView
from rmq_actors.tracing.events.network import NetReset
from rmq_actors.tracing.events.store import LogFlush
from tests.worlds.cluster_story import MASTER, SLAVE, Story


@attrs.define(eq=False)
class Seen(Invariant[LogFlush | NetReset]):
    """Notes what it is shown; `says` is what it finds wrong."""

    name = "seen"
    kinds = (LogFlush, NetReset)

    says: str | None = None
    shown: list[tuple[str, int]] = attrs.field(factory=list)

    def check(self, event: LogFlush | NetReset, view: ClusterView) -> str | None:
        self.shown.append((event.kind, view.nodes[event.node].synced))
        return self.says

    def at_end(self, view: ClusterView) -> str | None:
        return self.says


class LimitOfFlushes(Limit[LogFlush]):
    """Reached at once."""

    name = "limit"
    kinds = (LogFlush,)

    def check(self, event: LogFlush, view: ClusterView) -> str | None:
        return f"{event.node} flushes"


def judged(story: Story, *invariants: Invariant[Any]) -> Judge:
    story.judge = Judge(story.view, invariants, story.broken.append, lambda name, _: story.limits.append(name))
    return story.judge


def test_an_invariant_sees_its_kinds_alone_after_the_view_has_applied_them() -> None:
    story, seen = Story(), Seen()
    judge = judged(story, seen)
    story.append(MASTER, b"abc")
    story.emit(MASTER, "log.flush", offset=3)
    story.emit(MASTER, "net.reset", status="fault")  # the view itself does not want it
    story.emit(MASTER, "net.stall")
    assert (seen.shown, judge.checks) == ([("log.flush", 3), ("net.reset", 3)], 3)


def test_the_first_that_breaks_is_told_and_nothing_after_it() -> None:
    story, first, second = Story(), Seen("wrong"), Seen("wrong too")
    judge = judged(story, first, second)
    story.emit(SLAVE, "log.flush", offset=3)
    story.emit(SLAVE, "log.flush", offset=4)
    judge.check_end(99)
    assert (len(first.shown), second.shown) == (1, [])
    assert [str(each) for each in story.broken] == ["seen: wrong (at event 3)"]
    assert (judge.broken, story.view.nodes[SLAVE].synced) == (Broken("seen", "wrong", 3), 3)


def test_at_the_end_the_first_is_told() -> None:
    story = Story()
    judged(story, Seen(), Seen("wrong"), Seen("wrong too")).check_end(7)
    assert story.broken == [Broken("seen", "wrong", 7)]


class Mistaken(Seen):
    """Has a mistake of its own."""

    name = "mistaken"

    def check(self, event: LogFlush | NetReset, view: ClusterView) -> str | None:
        return str(view.nodes["nobody"])


class MistakenAtTheEnd(Seen):
    """Has one, too."""

    name = "mistaken_at_the_end"

    def at_end(self, view: ClusterView) -> str | None:
        return str(view.nodes["nobody"])


def test_an_invariant_that_raises_is_named_with_the_line() -> None:
    """The node whose event it was shown has not crashed."""
    story = Story()
    judged(story, Mistaken())
    story.emit(MASTER, "log.flush", offset=3)
    judged(story, MistakenAtTheEnd()).check_end(7)
    for broken, name in zip(story.broken, ("mistaken", "mistaken_at_the_end"), strict=True):
        assert broken.invariant == name
        assert re.fullmatch(r"it raises KeyError: 'nobody' \(test_judge\.py, line \d+\)", broken.detail)


def test_a_limit_breaks_nothing() -> None:
    story, seen = Story(), Seen()
    judged(story, LimitOfFlushes(), seen)
    story.emit(SLAVE, "log.flush", offset=3)
    assert (story.limits, story.broken, len(seen.shown)) == (["limit"], [], 1)


def test_kinds_without_a_check_are_a_mistake() -> None:
    class Forgotten(Invariant[LogFlush]):
        name = "forgotten"
        kinds = (LogFlush,)

    story = Story()
    judged(story, Forgotten())
    story.emit(SLAVE, "log.flush", offset=3)
    (broken,) = story.broken
    assert broken.detail.startswith("it raises NotImplementedError: Forgotten has kinds, and no check ")
