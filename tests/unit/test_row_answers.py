"""Answers to rows: told from the first row on, and sent together where one sync or one report releases them."""

from __future__ import annotations

from collections.abc import Callable

import attrs

from rmq_actors.protocols.put_completion import Completed, PutStatus
from rmq_actors.store.puts.put_completion_service import PutCompletionService, WaitingPuts
from rmq_actors.store.puts.row_answers import RowAnswers

OK, TIMEOUT = PutStatus.PUT_OK, PutStatus.FLUSH_SLAVE_TIMEOUT


@attrs.define(eq=False)
class Producer:
    """Notes what is answered, and when that is sent."""

    seen: list[str] = attrs.field(factory=list)

    def tell(self, begin: int, end: int, status: PutStatus) -> Callable[[], None]:
        self.seen.append(f"{begin}-{end} {status.value}")
        return self.send

    def send(self) -> None:
        self.seen.append("sent")


@attrs.define(eq=False)
class Rows:
    """A `WaitingPuts`."""

    answers: RowAnswers

    def answered(self, status: PutStatus, begin: int = 0, end: int = 1) -> Callable[[], None] | None:
        return self.answers.answered(begin, end, status)


def test_what_was_answered_before_anybody_asked_is_told_then_and_sent_once() -> None:
    answers, producer = RowAnswers(may_wait=True), Producer()
    assert answers.answered(0, 2, OK) is None
    assert answers.answered(2, 3, TIMEOUT) is None
    answers.tell(producer.tell)
    assert producer.seen == ["0-2 PUT_OK", "2-3 FLUSH_SLAVE_TIMEOUT", "sent"]


def test_what_one_report_releases_is_sent_once_after_all_of_it() -> None:
    producer, others = Producer(), Producer()
    runs = [RowAnswers(may_wait=True) for _ in range(3)]
    for answers, to in zip(runs, (producer, producer, others), strict=True):
        answers.tell(to.tell)
    done: list[Completed[WaitingPuts]] = [
        Completed(Rows(runs[0]), OK, 2, 4),
        Completed(Rows(runs[1]), OK, 0, 3),
        Completed(Rows(runs[2]), OK, 0, 1),
    ]
    PutCompletionService._answer(done)
    assert producer.seen == ["2-4 PUT_OK", "0-3 PUT_OK", "sent"]
    assert others.seen == ["0-1 PUT_OK", "sent"]
