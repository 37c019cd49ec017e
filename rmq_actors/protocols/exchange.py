"""How a master exchanges roles with a slave: the master conducts, and knows at each step what may be undone.

1. *check*: the slave says whether it can take over. Nothing has changed yet.
2. *fence*: the master refuses puts and changes of its tables. From here on its log has an end.
3. *prepare*: the slave says when it has the log up to that end, synced, and the tables as they are.
4. *note*: the master writes down what it is about to do.
5. *promote*: the slave becomes the master at a new term. Its yes may get lost: the master asks, still fenced, until it
   knows.
6. *step down*: the master becomes a slave of the new one, and removes the note.

Write the note before you ask for the promotion. Before the note exists, no promotion was asked for, and the master may
take puts again without asking anybody. After that only the slave's refusal lets it. A refusal is final: later requests
for the same promotion are refused too (`slave_preparation`). A master that has taken its role back leads a term above
the one that it had offered. A master that starts with a note goes on with step 5, fenced.

`RoleExchange` performs one effect after the other, and tells how each ended.
"""

from __future__ import annotations

import enum
import math

import attrs

from rmq_actors.protocols.backoff import Backoff

#: The pause before a slave that is not ready yet is asked again.
NOT_YET_PAUSE_S = 0.1
#: The first and the longest pause before a failed step is tried again.
AGAIN_MIN_S, AGAIN_MAX_S = 0.2, 2.0
#: How long writes may be refused before the slave is promoted, unless the operator says otherwise.
TIME_LIMIT_S = 30.0
TIME_LIMIT_MAX_S = 3600.0


class Step(enum.Enum):
    """The step that a master is at."""

    CHECK = "check"
    FENCE = "fence"
    PREPARE = "prepare"
    NOTE = "note"
    PROMOTE = "promote"
    STEP_DOWN = "step_down"
    TAKE_BACK = "take_back"
    ENDED = "ended"


@attrs.frozen
class Partner:
    """The slave: where it answers requests, where it serves its log, and which brokerId it has."""

    address: str
    ha_address: str
    broker_id: int


@attrs.frozen
class Note:
    """What a master writes down before it asks for the promotion.

    The slave prepared under the name `promotion`, with the log up to `end`; it is to lead `term`, in `role`.
    """

    promotion: str
    partner: Partner
    term: int
    end: int
    role: str


# --- effects ----------------------------------------------------------------------------------------------------------


@attrs.frozen
class Check:
    """Ask the slave whether it can take over: `Checked`, `Refused`, `Unanswered`."""


@attrs.frozen
class Fence:
    """Refuse puts and changes of tables from now on: `Fenced`."""


@attrs.frozen
class Prepare:
    """Ask the slave to be ready for this promotion: `Done`, `NotYet`, `Refused`, `Unanswered`."""

    promotion: str
    end: int
    partner: Partner


@attrs.frozen
class WriteNote:
    """Write the note, durably: `Done`, `Failed`."""

    note: Note


@attrs.frozen
class Promote:
    """Ask the slave to become the master: `Done`, `Refused`, `Unanswered`."""

    note: Note


@attrs.frozen
class AskState:
    """Ask the slave what it is: `StateTold`, `Unanswered`."""

    partner: Partner


@attrs.frozen
class StepDown:
    """Become a slave of the new master: `Done`, `Failed`."""

    note: Note


@attrs.frozen
class Lead:
    """Lead this term or a later one, durably: `Done`, `Failed`."""

    term: int


@attrs.frozen
class RemoveNote:
    """Remove the note, durably: `Done`, `Failed`."""


@attrs.frozen
class Unfence:
    """Take puts and changes of tables again: `Done`."""


@attrs.frozen
class Wait:
    """Let time pass: `Done`."""

    until: float


Effect = Check | Fence | Prepare | WriteNote | Promote | AskState | StepDown | Lead | RemoveNote | Unfence | Wait


# --- how they end -----------------------------------------------------------------------------------------------------


@attrs.frozen
class Checked:
    """The slave follows this master. `term` is the latest that it knows, `end` where its log ends."""

    partner: Partner
    term: int
    end: int


@attrs.frozen
class Fenced:
    """Puts are refused, and the log's end stays at `end`."""

    end: int


@attrs.frozen
class NotYet:
    """The slave is not ready, and may be soon: its log ends before what it must have, or it has just been connected."""

    why: str


@attrs.frozen
class StateTold:
    """What the slave is now: whether it is the master of `term`."""

    leads: bool
    term: int


@attrs.frozen
class Done:
    """It is done, or the slave says yes."""


@attrs.frozen
class Refused:
    """The slave says no."""

    why: str


@attrs.frozen
class Unanswered:
    """No answer came: what was asked for may be done, may be done later, or never."""

    why: str


@attrs.frozen
class Failed:
    """This broker failed to do it."""

    why: str


Outcome = Checked | Fenced | NotYet | StateTold | Done | Refused | Unanswered | Failed

EXCHANGED = "exchanged"
#: How an exchange ends that a command has overruled: the master may have any role now.
OVERRULED = "the role was set by command meanwhile"
_OVERRULED_STEPS = (Step.CHECK, Step.PREPARE, Step.PROMOTE)


@attrs.define(eq=False, repr=False)
class MasterExchange:
    """One exchange on its master's side. Perform `effect`, tell `happened`, until `step` is ENDED.

    Times are seconds of one monotonic clock. `term` is the master's, `log_end` where its log ends at first; a slave
    that lacks `far_bytes` or more of it is refused. The limit begins with the fence.
    """

    exchange_id: str
    role: str
    term: int
    log_end: int
    far_bytes: int
    limit_s: float = TIME_LIMIT_S
    note: Note | None = None
    step: Step = attrs.field(default=Step.CHECK, init=False)
    effect: Effect | None = attrs.field(factory=Check, init=False)
    #: What it waits for, or how it has ended, in words.
    detail: str = attrs.field(default="", init=False)
    is_exchanged: bool = attrs.field(default=False, init=False)
    is_overruled: bool = attrs.field(default=False, init=False)
    _is_to_follow: bool = attrs.field(default=False, init=False)
    _partner: Partner | None = attrs.field(default=None, init=False)
    _attempts: int = attrs.field(default=0, init=False)
    _end: int = attrs.field(default=0, init=False)
    #: Until when a slave that is not ready is waited for.
    give_up_at: float = attrs.field(default=math.inf, init=False)
    _backoff: Backoff = attrs.field(factory=lambda: Backoff(AGAIN_MIN_S, AGAIN_MAX_S), init=False)
    #: Why the master takes back its role, or steps down before it knows that the slave leads.
    _cause: str = attrs.field(default="", init=False)
    #: The effect that follows a pause.
    _next: Effect | None = attrs.field(default=None, init=False)

    @classmethod
    def resumed(cls, note: Note, *, is_slave: bool) -> MasterExchange:
        """The exchange with which a start that finds a note goes on, fenced; `is_slave`: it has stepped down."""
        machine = cls(note.promotion, note.role, note.term, note.end, 0, note=note)
        machine._partner, machine._end = note.partner, note.end
        if is_slave:
            machine._go(Step.STEP_DOWN, RemoveNote())
        else:
            machine._go(Step.PROMOTE, AskState(note.partner))
        return machine

    @property
    def may_be_cut_short(self) -> bool:
        """Whether an overruled exchange need not wait for the present effect, which is told `Unanswered`."""
        return self.step in _OVERRULED_STEPS and isinstance(self.effect, Check | Prepare | Promote | AskState | Wait)

    def overrule(self, *, by_slave: bool = False) -> None:
        """An operator sets the role: this broker goes on leading. Takes effect with the next outcome.

        If the slave is known to be the master by now, this broker follows it all the same. If it was only asked to
        become the master, this broker follows it if the operator makes this broker a slave (`by_slave`): until then it
        takes no puts and goes to no later term.
        """
        self.is_overruled, self._is_to_follow = True, by_slave

    def happened(self, outcome: Outcome, now: float) -> None:
        """The effect has ended in this way."""
        if self.is_overruled and self.may_be_cut_short:
            self._overruled()
            return
        match self.step:
            case Step.CHECK:
                self._checked(outcome)
            case Step.FENCE:
                self._fenced(outcome, now)
            case Step.PREPARE:
                self._prepared(outcome, now)
            case Step.NOTE:
                self._noted(outcome)
            case Step.PROMOTE:
                self._promoted(outcome, now)
            case Step.STEP_DOWN:
                self._stepped_down(outcome, now)
            case Step.TAKE_BACK:
                self._took_back(outcome, now)
            case Step.ENDED:
                raise ValueError(f"exchange {self.exchange_id} has ended")

    # --- before the note: nobody else has to be asked to take it back -----------------------------------------------

    def _checked(self, outcome: Outcome) -> None:
        match outcome:
            case Checked(partner, term, end):
                missing = self.log_end - end
                if term > self.term:
                    self._end_with(f"the slave knows of term {term}, later than {self.term}, which this master leads")
                elif missing >= self.far_bytes:
                    self._end_with(f"the slave lacks {missing} bytes of the log: let it catch up first")
                else:
                    self._partner = partner
                    self._go(Step.FENCE, Fence())
            case Refused(why) | Unanswered(why):
                self._end_with(why)
            case _:
                raise self._unexpected(outcome)

    def _fenced(self, outcome: Outcome, now: float) -> None:
        if not isinstance(outcome, Fenced):
            raise self._unexpected(outcome)
        self._end, self.give_up_at = outcome.end, now + self.limit_s
        self._prepare()

    def _prepare(self) -> None:
        assert self._partner is not None
        self._attempts += 1
        # Each attempt has a name of its own: a request that was given up may arrive after a later one.
        self._go(Step.PREPARE, Prepare(f"{self.exchange_id}-{self._attempts}", self._end, self._partner))

    def _prepared(self, outcome: Outcome, now: float) -> None:
        effect = self.effect
        if isinstance(effect, Wait):
            self._prepare()
            return
        match outcome:
            case Done():
                assert isinstance(effect, Prepare)
                self.note = Note(effect.promotion, effect.partner, self.term + 1, self._end, self.role)
                self._go(Step.NOTE, WriteNote(self.note))
            case NotYet(why):
                self._again_until_the_limit(why, now, NOT_YET_PAUSE_S)
            case Unanswered(why):
                self._again_until_the_limit(why, now, self._backoff.next_pause_s(1.0))
            case Refused(why):
                self._take_back(why, Unfence())
            case _:
                raise self._unexpected(outcome)

    def _again_until_the_limit(self, why: str, now: float, pause_s: float) -> None:
        if now + pause_s >= self.give_up_at:
            self._take_back(f"not ready within {self.limit_s:g} s: {why}", Unfence())
        else:
            self.detail, self.effect = why, Wait(now + pause_s)

    def _noted(self, outcome: Outcome) -> None:
        match outcome:
            case Done():
                assert self.note is not None
                self._backoff.succeeded()
                self._go(Step.PROMOTE, Promote(self.note))
            case Failed(why):
                # The note may be there all the same, and would fence the next start.
                self._take_back(f"the note of it cannot be written: {why}", RemoveNote())
            case _:
                raise self._unexpected(outcome)

    # --- with the note: only the slave's refusal takes it back --------------------------------------------------------

    def _promoted(self, outcome: Outcome, now: float) -> None:
        note, effect = self.note, self.effect
        assert note is not None
        if isinstance(effect, Wait):
            self.effect = AskState(note.partner)
            return
        match outcome:
            case Done():
                self._go(Step.STEP_DOWN, StepDown(note))
            case StateTold(leads, term):
                if leads and term >= note.term:
                    self._go(Step.STEP_DOWN, StepDown(note))
                else:
                    self.effect = Promote(note)
            case Refused(why):
                self._take_back(why, Lead(note.term + 1))
            case Unanswered(why):
                self.detail = f"it is not known whether the slave is the master by now: {why}"
                self.effect = Wait(now + self._backoff.next_pause_s(1.0))
            case _:
                raise self._unexpected(outcome)

    def _stepped_down(self, outcome: Outcome, now: float) -> None:
        match outcome:
            case Failed(why):
                self._retry(why, now)
            case Done():
                if isinstance(self.effect, Wait):
                    assert self._next is not None
                    self.effect = self._next
                elif isinstance(self.effect, StepDown):
                    self._go(Step.STEP_DOWN, RemoveNote())
                elif isinstance(self.effect, RemoveNote):
                    self.effect = Unfence()
                elif self._cause:
                    self._end_with(self._cause)
                else:
                    self.is_exchanged = True
                    self._end_with(EXCHANGED)
            case _:
                raise self._unexpected(outcome)

    # --- back ---------------------------------------------------------------------------------------------------------

    def _overruled(self) -> None:
        why = OVERRULED
        if self.step is Step.CHECK:
            self._end_with(why)
        elif self.note is None:
            self._take_back(why, Unfence())
        elif self._is_to_follow:
            self._go(Step.STEP_DOWN, StepDown(self.note))
            self.detail = self._cause = why
        else:
            self._take_back(why, Lead(self.note.term + 1))

    def _take_back(self, why: str, effect: Effect) -> None:
        self._backoff.succeeded()
        self._go(Step.TAKE_BACK, effect)
        self.detail = self._cause = why

    def _took_back(self, outcome: Outcome, now: float) -> None:
        match outcome:
            case Failed(why):
                self._retry(why, now)
            case Done():
                if isinstance(self.effect, Wait):
                    assert self._next is not None
                    self.effect = self._next
                elif isinstance(self.effect, Lead):
                    self.effect = RemoveNote()
                elif isinstance(self.effect, RemoveNote):
                    self.effect = Unfence()
                else:
                    self._end_with(self._cause)
            case _:
                raise self._unexpected(outcome)

    def _retry(self, why: str, now: float) -> None:
        """This broker's own disk fails: nothing is certain until it has worked once."""
        self._next, self.effect = self.effect, Wait(now + self._backoff.next_pause_s(1.0))
        self.detail = f"{self._cause}; {why}" if self._cause else why

    def _go(self, step: Step, effect: Effect) -> None:
        self.step, self.effect, self.detail = step, effect, ""

    def _end_with(self, detail: str) -> None:
        self.step, self.effect, self.detail = Step.ENDED, None, detail

    def _unexpected(self, outcome: Outcome) -> ValueError:
        return ValueError(f"exchange {self.exchange_id}: {outcome} in step {self.step.value}, of {self.effect}")
