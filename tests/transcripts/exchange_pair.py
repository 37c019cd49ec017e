"""Both machines of an exchange, driven by the commands of a transcript. Who writes it is the network and the disks."""

from __future__ import annotations

from collections.abc import Iterator

import attrs

from rmq_actors.protocols import exchange
from rmq_actors.protocols import slave_preparation as exchange_partner
from rmq_actors.protocols.exchange import MasterExchange, Note, Outcome, Partner, Step
from rmq_actors.protocols.slave_preparation import Promotion, SlavePreparation, SlaveState

PARTNER = Partner("b:20911", "b:20912", 1)
FAR_BYTES = 1000


def _settings(words: tuple[str, ...]) -> dict[str, int]:
    return {key: int(value) for key, _, value in (word.partition("=") for word in words)}


@attrs.define(eq=False)
class ExchangePair:
    """A master of a term, and a slave."""

    now: float = 0.0
    master: MasterExchange = attrs.field(init=False)
    slave: SlaveState = attrs.field(
        factory=lambda: SlaveState("broker-a", is_slave=True, term=3, leads=False, log_end=900, life=1)
    )
    preparation: SlavePreparation = attrs.field(factory=SlavePreparation)

    def run(self, command: str) -> Iterator[str]:
        """Execute one command; what comes out."""
        name, *words = command.split()
        yield from {
            "begin": self.begin,
            "restart": self.restart,
            "done": lambda: self.tell(exchange.Done()),
            "fenced": lambda end: self.tell(exchange.Fenced(int(end))),
            "not_yet": lambda *why: self.tell(exchange.NotYet(" ".join(why))),
            "checked": self.checked,
            "told": self.told,
            "refused": lambda *why: self.tell(exchange.Refused(" ".join(why))),
            "unanswered": lambda *why: self.tell(exchange.Unanswered(" ".join(why))),
            "failed": lambda *why: self.tell(exchange.Failed(" ".join(why))),
            "overrule": self.overrule,
            "at": self.at,
            "slave": self.set_slave,
            "prepare": self.prepare,
            "promote": self.promote,
        }[name](*words)  # type: ignore[operator]

    def begin(self, *words: str) -> Iterator[str]:
        """`begin term=3 end=1000`: the operator asks a master of that term, whose log ends there."""
        given = _settings(words)
        self.master = MasterExchange("x", "SYNC_MASTER", given["term"], given["end"], FAR_BYTES)
        yield from self.what_now()

    def restart(self, role: str) -> Iterator[str]:
        """`restart master|slave`: the broker that conducts is started again with its note, in the role of its file."""
        assert self.master.note is not None
        self.master = MasterExchange.resumed(self.master.note, is_slave=role == "slave")
        yield from self.what_now()

    def at(self, seconds: str) -> Iterator[str]:
        """`at 2.5`: it is so late now; a pause that is over ends."""
        self.now = float(seconds)
        effect = self.master.effect
        if isinstance(effect, exchange.Wait):
            assert self.now >= effect.until
            self.master.happened(exchange.Done(), self.now)
        yield from self.what_now()

    def checked(self, *words: str) -> Iterator[str]:
        """`checked term=3 end=900`: the slave can take over, and says so."""
        given = _settings(words)
        yield from self.tell(exchange.Checked(PARTNER, given["term"], given["end"]))

    def told(self, what: str, term: str) -> Iterator[str]:
        """`told leads|follows term=4`: what the slave is."""
        yield from self.tell(exchange.StateTold(what == "leads", _settings((term,))["term"]))

    def tell(self, outcome: Outcome) -> Iterator[str]:
        """The effect has ended in this way."""
        self.master.happened(outcome, self.now)
        yield from self.what_now()

    def overrule(self, role: str = "master") -> Iterator[str]:
        """`overrule`, `overrule slave`: the operator sets the role; what is under way is given up, if that can be."""
        self.master.overrule(by_slave=role == "slave")
        if self.master.may_be_cut_short:
            self.master.happened(exchange.Unanswered("given up"), self.now)
        yield from self.what_now()

    def set_slave(self, *words: str) -> Iterator[str]:
        """`slave end=1000 life=2 term=4 leads=1 slave=0 followed=0`: what the slave is from now on."""
        slave, given = self.slave, _settings(words)
        self.slave = attrs.evolve(
            slave,
            log_end=given.get("end", slave.log_end),
            life=given.get("life", slave.life),
            term=given.get("term", slave.term),
            leads=bool(given.get("leads", slave.leads)),
            is_slave=bool(given.get("slave", slave.is_slave)),
            is_followed=bool(given.get("followed", slave.is_followed)),
        )
        yield f"slave: {'slave' if self.slave.is_slave else 'master'}, term {self.slave.term}, log {self.slave.log_end}"

    def prepare(self, name: str, term: str, end: str) -> Iterator[str]:
        """`prepare x-1 term=3 end=1000`: the request reaches the slave, which syncs its log and takes the tables."""
        given = _settings((term, end))
        no_partner = exchange_partner.why_no_partner(self.slave, "broker-a", given["term"])
        not_ready = exchange_partner.why_not_ready(self.slave, given["end"])
        if no_partner is not None:
            yield f"slave: refuses: {no_partner}"
        elif not_ready is not None:
            yield f"slave: not yet: {not_ready}"
        else:
            self.preparation.ready(name, self.slave)
            yield f"slave: is ready for {name}"

    def promote(self, name: str, term: str, end: str) -> Iterator[str]:
        """`promote x-1 term=4 end=1000`: the request reaches the slave."""
        asked = Promotion(name, **_settings((term, end)))
        if exchange_partner.is_promoted(asked, self.slave):
            yield f"slave: leads term {self.slave.term} already"
            return
        why = self.preparation.why_not_promoted(asked, self.slave)
        if why is None:
            self.slave = attrs.evolve(self.slave, is_slave=False, leads=True, term=asked.term)
        yield f"slave: {f'refuses: {why}' if why else f'becomes the master of term {asked.term}'}"

    def what_now(self) -> Iterator[str]:
        """What the master does, and why if it says so."""
        master = self.master
        why = f": {master.detail}" if master.detail else ""
        if master.step is Step.ENDED:
            yield f"master: {'slave' if master.is_exchanged else 'master'}{why}"
        else:
            yield f"master: {master.step.value}: {_text(master.effect)}{why}"


def _text(effect: exchange.Effect | None) -> str:
    match effect:
        case exchange.Prepare(promotion, end):
            return f"asks the slave to prepare {promotion} with the log up to {end}"
        case exchange.WriteNote(note):
            return f"writes {_note(note)}"
        case exchange.Promote(note):
            return f"asks the slave for {_note(note)}"
        case exchange.Lead(term):
            return f"leads term {term} or a later one"
        case exchange.Wait(until):
            return f"waits until {until:g}"
        case exchange.AskState():
            return "asks the slave what it is"
        case exchange.Check():
            return "asks the slave whether it can take over"
        case exchange.Fence():
            return "refuses puts"
        case exchange.Unfence():
            return "takes puts again"
        case exchange.RemoveNote():
            return "removes the note"
        case exchange.StepDown(note):
            return f"becomes a slave of {note.partner.address}"
        case _:
            raise AssertionError(effect)


def _note(note: Note) -> str:
    return f"{note.promotion}: {note.role} of term {note.term} at {note.end}"
