"""PutCompletion against a naive model: a list of puts, looked through whole at every event."""

from __future__ import annotations

from typing import Literal

import attrs
from hypothesis import given, settings
from hypothesis import strategies as st

from rmq_actors.protocols.put_completion import Completed, PutCompletion, PutStatus

OK = PutStatus.PUT_OK


@attrs.define
class NaivePut:
    token: int
    end_offset: int
    flush: PutStatus | None
    replica: PutStatus | None
    flush_deadline: float
    replica_deadline: float
    wants_replica: bool


@attrs.define
class NaiveModel:
    """What is true of each put, looked at one by one."""

    puts: list[NaivePut] = attrs.field(factory=list)
    flushed: int = 0
    replicated: int = 0
    now: float = 0.0

    def settle(self) -> set[tuple[int, PutStatus]]:
        done = [put for put in self.puts if put.flush is not None and put.replica is not None]
        self.puts = [put for put in self.puts if put not in done]
        return {(put.token, self.status(put)) for put in done}

    @staticmethod
    def status(put: NaivePut) -> PutStatus:
        assert put.flush is not None
        assert put.replica is not None
        return put.replica if put.replica is not OK else put.flush

    def rise(self) -> set[tuple[int, PutStatus]]:
        for put in self.puts:
            if put.flush is None and put.end_offset <= self.flushed:
                put.flush = OK
            if put.replica is None and put.end_offset <= self.replicated:
                put.replica = OK
        return self.settle()

    def fail_flush(self) -> set[tuple[int, PutStatus]]:
        for put in self.puts:
            put.flush = put.flush or PutStatus.FLUSH_DISK_TIMEOUT
        return self.settle()

    def expire(self) -> set[tuple[int, PutStatus]]:
        for put in self.puts:
            if put.flush is None and put.flush_deadline <= self.now:
                put.flush = PutStatus.FLUSH_DISK_TIMEOUT
            if put.replica is None and put.replica_deadline <= self.now:
                put.replica = PutStatus.FLUSH_SLAVE_TIMEOUT
        return self.settle()


Step = tuple[Literal["add", "flushed", "replicated", "expire", "flush_failed"], int, bool, bool, bool]
steps = st.lists(
    st.tuples(
        st.sampled_from(("add", "add", "add", "flushed", "replicated", "expire", "flush_failed")),
        st.integers(1, 40),
        st.booleans(),
        st.booleans(),
        st.sampled_from((True, True, True, False)),
    ),
    max_size=60,
)


@attrs.define
class Run:
    """The machine and the model side by side."""

    machine: PutCompletion[int] = attrs.field(factory=PutCompletion)
    model: NaiveModel = attrs.field(factory=NaiveModel)
    end: int = 0
    answered: dict[int, PutStatus] = attrs.field(factory=dict)
    ends: dict[int, int] = attrs.field(factory=dict)
    wants: dict[int, tuple[bool, bool]] = attrs.field(factory=dict)

    def step(self, step: Step) -> None:
        kind, number, flush, replica, slave = step
        if kind == "add":
            self.note(*self.add(number, flush, replica, slave))
        elif kind == "flushed":
            # Watermarks may repeat or fall: a fall is a slave that went away.
            self.model.flushed = max(self.model.flushed, number * 10)
            self.note(self.machine.flushed_to(number * 10), self.model.rise())
        elif kind == "replicated":
            self.model.replicated = max(self.model.replicated, number * 10)
            self.note(self.machine.replicated_to(number * 10), self.model.rise())
        elif kind == "expire":
            self.model.now += number / 8
            self.note(self.machine.expire(self.model.now), self.model.expire())
            assert self.machine.wake_at() > self.model.now
        else:
            self.note(self.machine.flush_failed(), self.model.fail_flush())

    def add(
        self, number: int, flush: bool, replica: bool, slave: bool
    ) -> tuple[list[Completed[int]], set[tuple[int, PutStatus]]]:
        """Take a run of 1 to 4 puts, `number` bytes apart."""
        first, count = len(self.ends), 1 + number % 4
        # Deadlines of one store do not fall: an arrival and a constant.
        deadline = self.model.now + 2.0
        # A put of ASYNC_MASTER looks for no slave: whether one is there does not matter to it in the store's use.
        no_replica = OK if slave else PutStatus.SLAVE_NOT_AVAILABLE
        for token in range(first, first + count):
            self.end += number
            self.ends[token], self.wants[token] = self.end, (flush, replica)
            waits_for_slave = replica and slave
            self.model.puts.append(
                NaivePut(
                    token,
                    self.end,
                    None if flush else OK,
                    None if waits_for_slave else no_replica,
                    deadline,
                    deadline,
                    replica,
                )
            )
        done = self.machine.add_run(
            first,
            [self.ends[token] for token in range(first, first + count)],
            flush_deadline=deadline if flush else None,
            replica_deadline=deadline if replica else None,
            slave_available=slave,
        )
        return done, self.model.rise()

    def note(self, done: list[Completed[int]], expected: set[tuple[int, PutStatus]]) -> None:
        answered = [(each.token + n, each.status) for each in done for n in range(each.begin, each.end)]
        assert set(answered) == expected
        assert len(answered) == len(expected)
        for token, status in answered:
            assert token not in self.answered, "answered twice"
            self.answered[token] = status
            self.check_promise(token, status)
        assert self.machine.waiting == len(self.model.puts)
        waits = [sum(getattr(put, what) is None for put in self.model.puts) for what in ("flush", "replica")]
        assert self.machine.room == max(0, self.machine.waiting_max - max(waits))

    def check_promise(self, token: int, status: PutStatus) -> None:
        end, (flush, replica) = self.ends[token], self.wants[token]
        if status is OK:
            assert not flush or end <= self.model.flushed
            assert not replica or end <= self.model.replicated


@settings(max_examples=300)
@given(steps)
def test_the_machine_answers_as_the_model_does(taken: list[Step]) -> None:
    run = Run()
    for step in taken:
        run.step(step)
    run.model.now = float("inf")
    run.note(run.machine.expire(float("inf")), run.model.expire())
    assert run.answered.keys() == run.ends.keys()
