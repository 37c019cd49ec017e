"""A master and a slave that exchange roles over a network that loses, delays and holds up requests; both die at will.

Everything that can happen is tried, in every order, up to so many deaths, requests under way and puts; at any moment
the operator may make a slave of the old master. The machines are the product's; the rest is a model of what their
drivers do.
"""

from __future__ import annotations

import copy
from collections import Counter, deque
from collections.abc import Hashable, Iterator
from typing import NamedTuple

import attrs

from rmq_actors.protocols import exchange
from rmq_actors.protocols import slave_preparation as exchange_partner
from rmq_actors.protocols.exchange import MasterExchange, Note, Outcome, Partner, Step
from rmq_actors.protocols.slave_preparation import Promotion, SlavePreparation, SlaveState

PARTNER = Partner("b:1", "b:2", 1)
DEATHS_MAX = 1
ATTEMPTS_MAX = 2
IN_FLIGHT_MAX = 2
PUTS_MAX = 1
FAILED_WRITES_MAX = 1
EXCHANGES_MAX = 2
COMMANDS_MAX = 1


class Request(NamedTuple):
    """What was sent, and has not come yet. Only the last one's sender still waits for the answer."""

    what: exchange.Prepare | exchange.Promote
    is_awaited: bool


@attrs.define
class Model:
    """Everything that decides what may happen next."""

    machine: MasterExchange | None = None
    note: Note | None = None
    #: Whether the old master's file says so; whether it refuses puts.
    is_master: bool = True
    is_fenced: bool = False
    term: int = 1
    end: int = 10
    slave: SlaveState = attrs.field(
        factory=lambda: SlaveState("a", is_slave=True, term=1, leads=False, log_end=10, life=1)
    )
    preparation: SlavePreparation = attrs.field(factory=SlavePreparation)
    in_flight: tuple[Request, ...] = ()
    #: Whether the present effect was sent.
    is_sent: bool = False
    deaths: int = 0
    puts: int = 0
    failed_writes: int = 0
    exchanges: int = 1
    commands: int = 0
    #: The operator makes a slave of the old master as soon as no exchange is under way.
    is_to_be_slave: bool = False
    #: How it came to this.
    path: tuple[str, ...] = attrs.field(default=(), eq=False)

    @property
    def takes_puts(self) -> bool:
        """Whether the old master confirms puts."""
        return self.is_master and not self.is_fenced

    def broken(self) -> str:
        """What must never be."""
        if self.takes_puts and self.slave.is_leader:
            return "two masters"
        if self.slave.is_leader and self.slave.log_end < self.end:
            return "the new master lacks what was confirmed"
        if self.takes_puts and self.slave.term > self.term:
            return "the slave does not believe its master: it knows of a later term"
        if not self.is_master and self.slave.is_leader and self.term > self.slave.term:
            return "the old master does not believe the new one: it knows of a later term"
        return ""

    def key(self) -> Hashable:
        """The same for models that go on in the same way."""
        told: Hashable = None
        if self.machine is not None:
            machine = self.machine
            effect = "wait" if isinstance(machine.effect, exchange.Wait) else machine.effect
            overruled = machine.is_overruled, machine._is_to_follow, machine._cause
            told = machine.step, effect, machine.note, machine._next, machine._attempts, overruled
        prepared = self.preparation._prepared, self.preparation._life, self.preparation._end
        state = self.note, self.is_master, self.is_fenced, self.term, self.end, self.slave
        bounds = self.deaths, self.puts, self.failed_writes, self.exchanges, self.commands, self.is_to_be_slave
        return told, prepared, state, frozenset(Counter(self.in_flight).items()), self.is_sent, bounds

    def after(self, what: str) -> Model:
        """A copy, in which something has happened."""
        machine, path = copy.copy(self.machine), (*self.path, what)
        return attrs.evolve(self, machine=machine, preparation=copy.copy(self.preparation), path=path)


def successors(now: Model) -> Iterator[Model]:
    """What can happen next."""
    yield from _puts(now)
    yield from _network(now)
    yield from _master(now)
    yield from _operator(now)
    if now.deaths < DEATHS_MAX:
        yield from _deaths(now)


def _puts(now: Model) -> Iterator[Model]:
    if now.takes_puts and now.puts < PUTS_MAX:
        put = now.after("a put is confirmed")
        put.puts, put.end = put.puts + 1, put.end + 1
        yield put
    if now.is_master and now.slave.is_slave and now.slave.log_end < now.end:
        copied = now.after("the slave catches up")
        copied.slave = attrs.evolve(copied.slave, log_end=copied.end)
        yield copied


def _network(now: Model) -> Iterator[Model]:
    for number, request in enumerate(now.in_flight):
        rest = (*now.in_flight[:number], *now.in_flight[number + 1 :])
        lost = now.after(f"lost: {request}")
        lost.in_flight = rest
        yield lost
        come = now.after(f"comes: {request}")
        come.in_flight = rest
        if isinstance(request.what, exchange.Prepare):
            yield _answered(come, request, _prepare(come, request.what))
        else:
            yield from _promote(come, request, request.what.note)


def _prepare(model: Model, request: exchange.Prepare) -> Outcome:
    why = exchange_partner.why_no_partner(model.slave, "a", model.term)
    if why is not None:
        return exchange.Refused(why)
    not_ready = exchange_partner.why_not_ready(model.slave, request.end)
    if not_ready is not None:
        return exchange.NotYet(not_ready)
    model.preparation.ready(request.promotion, model.slave)
    return exchange.Done()


def _promote(come: Model, request: Request, note: Note) -> Iterator[Model]:
    asked = Promotion(note.promotion, note.term, note.end)
    if exchange_partner.is_promoted(asked, come.slave):
        yield _answered(come, request, exchange.Done())
        return
    why = come.preparation.why_not_promoted(asked, come.slave)
    if why is not None:
        yield _answered(come, request, exchange.Refused(why))
        return
    done = come.after("the slave leads")
    done.slave = attrs.evolve(done.slave, is_slave=False, leads=True, term=asked.term, life=done.slave.life + 1)
    yield done.after("and its yes is lost")
    yield _answered(done, request, exchange.Done())
    if come.failed_writes + come.commands < FAILED_WRITES_MAX:
        # It stays a slave, and says no; its term may be durable by then.
        for is_term_durable in (False, True):
            failed = come.after(f"the slave cannot write its {'settings' if is_term_durable else 'term'}")
            failed.failed_writes += 1
            if is_term_durable:
                failed.slave = attrs.evolve(failed.slave, leads=True, term=asked.term)
            yield _answered(failed, request, exchange.Refused("the disk is full"))


def _answered(model: Model, request: Request, outcome: Outcome) -> Model:
    """The answer comes, unless nobody waits for it any more."""
    return _told(model, outcome) if request.is_awaited and model.is_sent else model


def _told(model: Model, outcome: Outcome) -> Model:
    assert model.machine is not None
    model.is_sent = False
    model.in_flight = tuple(Request(each.what, is_awaited=False) for each in model.in_flight)
    # The limit comes with the last attempt.
    model.machine.happened(outcome, 0.0 if model.machine._attempts < ATTEMPTS_MAX else 1e9)
    if model.machine.step is Step.ENDED:
        model.machine = None
    return model


def _master(now: Model) -> Iterator[Model]:
    """What the old master does by itself, or gives up."""
    if now.machine is None:
        if now.takes_puts and now.exchanges + now.commands < EXCHANGES_MAX:
            again = now.after("another exchange")
            again.exchanges += 1
            again.machine = MasterExchange(f"x{again.exchanges}", "ASYNC_MASTER", again.term, again.end, 100)
            yield again
        return
    effect = now.machine.effect
    done = now.after(f"{effect}")
    assert done.machine is not None
    match effect:
        case exchange.Prepare() | exchange.Promote() if not now.is_sent:
            if len(now.in_flight) < IN_FLIGHT_MAX:
                done.in_flight, done.is_sent = (*done.in_flight, Request(effect, is_awaited=True)), True
                yield done
        case exchange.Prepare() | exchange.Promote():
            yield _told(now.after("no answer"), exchange.Unanswered("silent"))
        case exchange.AskState():
            yield _told(done, exchange.StateTold(done.slave.is_leader, done.slave.term))
            yield _told(now.after("no answer"), exchange.Unanswered("silent"))
        case exchange.Check():
            yield _told(done, exchange.Checked(PARTNER, done.slave.term, done.slave.log_end))
        case exchange.Fence():
            done.is_fenced = True
            yield _told(done, exchange.Fenced(done.end))
        case exchange.Wait():
            yield _told(done, exchange.Done())
        case _:
            yield from _writes(now, done)


def _writes(now: Model, done: Model) -> Iterator[Model]:
    """An effect on the old master's disk, which may fail: then it may be done all the same."""
    assert now.machine is not None
    effect = now.machine.effect
    match effect:
        case exchange.WriteNote(note):
            done.note = note
        case exchange.RemoveNote():
            done.note = None
        case exchange.StepDown():
            done.is_master = False
        case exchange.Lead(term):
            done.term = max(done.term + 1, term)
        case exchange.Unfence():
            done.is_fenced = False
        case _:
            raise AssertionError(effect)
    if not isinstance(effect, exchange.Unfence) and now.failed_writes + now.commands < FAILED_WRITES_MAX:
        for failed in (now.after(f"{effect} fails"), done.after("which is told as failed")):
            failed.failed_writes += 1
            yield _told(failed, exchange.Failed("the disk is full"))
    yield _told(done, exchange.Done())


def _operator(now: Model) -> Iterator[Model]:
    """A command that makes a slave of the old master: it gives up what is under way, then it is done."""
    # Beside a disk that fails, or in another exchange, it would take three times as long, and shows nothing more.
    is_plain = now.failed_writes == 0 and now.exchanges == 1
    if now.machine is not None and now.commands < COMMANDS_MAX and is_plain:
        told = now.after("the operator wants it to be a slave")
        assert told.machine is not None
        told.commands, told.is_to_be_slave = told.commands + 1, True
        told.machine.overrule(by_slave=True)
        yield _told(told, exchange.Unanswered("given up")) if told.machine.may_be_cut_short else told
    if now.machine is None and now.is_to_be_slave:
        done = now.after("it is made a slave")
        done.is_master = done.is_to_be_slave = False
        yield done


def _deaths(now: Model) -> Iterator[Model]:
    master = now.after("the old master is started again")
    master.deaths += 1
    master.is_sent, master.machine, master.is_to_be_slave = False, None, False
    master.in_flight = tuple(Request(each.what, is_awaited=False) for each in master.in_flight)
    master.is_fenced = master.note is not None
    if master.note is not None:
        master.machine = MasterExchange.resumed(master.note, is_slave=not master.is_master)
    yield master
    slave = now.after("the slave is started again")
    slave.deaths += 1
    slave.preparation, slave.slave = SlavePreparation(), attrs.evolve(slave.slave, life=slave.slave.life + 1)
    yield slave


def explore() -> tuple[int, set[str], list[Model]]:
    """How many states there are, in which steps it may end, and the ones that must not be, with how they came about."""
    first = Model(machine=MasterExchange("x", "ASYNC_MASTER", 1, 10, 100))
    seen, waiting = {first.key()}, deque([first])
    ends, broken = set[str](), list[Model]()
    while waiting:
        model = waiting.popleft()
        following = list(successors(model))
        for each in following:
            key = each.key()
            if key not in seen:
                seen.add(key)
                if each.broken():
                    broken.append(each)
                else:
                    waiting.append(each)
        if model.machine is None:
            ends.add(f"{'master' if model.is_master else 'slave'}, {'slave' if model.slave.is_slave else 'master'}")
    return len(seen), ends, broken
