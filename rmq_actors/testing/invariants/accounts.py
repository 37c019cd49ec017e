"""What clients of accounts are allowed, and what becomes of changes of accounts."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

import attrs

from rmq_actors.testing.account_requests import MADE, MARK, real_topic
from rmq_actors.testing.account_table import (
    ACCOUNTS_AT_FIRST,
    DEEP,
    RETRY,
    WHITE_LIST,
    Account,
    Claim,
    Verdict,
    need,
    of_group,
    verdict,
)
from rmq_actors.testing.invariants.invariant import Invariant
from rmq_actors.testing.node_view import NodeView
from rmq_actors.testing.strange_requests import STORED
from rmq_actors.testing.view import TABLES, ClusterView
from rmq_actors.tracing.event import Event
from rmq_actors.tracing.events.run import ClientAccount, ClientAccountChange, OperatorSetUpAnew
from rmq_actors.tracing.events.storage import StorageError, StorageStuck
from rmq_actors.tracing.events.store import LogAppend, StoreOpen
from rmq_actors.wire.dispatch_request import (
    CHECK_MAX_TIME_TOPIC,
    HALF_TOPIC,
    PROPERTY_INNER_MULTI_QUEUE_OFFSET,
    WAITING_TOPICS,
)
from rmq_actors.wire.record import BLANK, MESSAGE_MAGIC, StoredMessage, decode_message
from rmq_actors.wire.response_code import ResponseCode

DENIED, ONEWAY, IMPOSSIBLE = "denied", "oneway", "?"
_REFUSED: frozenset[Verdict] = frozenset({"refused", "refused_later"})
#: What dead letters of a group stand in.
_DEAD = "%DLQ%"

#: An account, or the addresses that need none; each is None where it is not there.
_Value = Account | tuple[str, ...] | None


@attrs.frozen
class _Asked:
    """A request of a client."""

    event: ClientAccount
    #: Which change of an account was the last one before.
    change: int
    #: The topic of the record that it is about; None: unknown.
    record_topic: str | None

    @property
    def claim(self) -> Claim:
        return Claim(self.event.account, self.event.secret, self.event.host)


@attrs.frozen
class _Change:
    """A change of accounts that is under way."""

    value: _Value
    #: What was possible before it was asked for.
    before: Collection[_Value]
    #: How often all that the node had had been removed.
    removals: int


@attrs.define(eq=False, repr=False)
class Accounts(Invariant[Any]):
    """Who may not is refused, and nothing is stored, made or shown for them; who may is not refused as one who may not.

    A message that waits, or is one group's, is in no queue of a topic that others receive from.

    What counts are the accounts as the run has given them to the broker. A change holds from the answer SUCCESS on, at
    that broker, whatever becomes of its process and its power, until an operator removes all that it has; one that is
    under way, or was never answered, may hold or not; one that cannot be is refused as such, and changes nothing. Any
    other refusal of a change is right only where a disk has failed since the store was opened, or the broker is busy.
    A broker knows each of these requests.
    """

    name = "accounts"
    kinds = (ClientAccount, ClientAccountChange, LogAppend, StoreOpen, OperatorSetUpAnew, StorageError, StorageStuck)

    #: What there may have been, by node and access key: from which change on, all values that were possible.
    _possible: dict[tuple[str, str], list[tuple[int, frozenset[_Value]]]] = attrs.field(factory=dict, init=False)
    _changes: int = attrs.field(default=0, init=False)
    #: Changes that are asked for, by node and account.
    _under_way: dict[tuple[str, str], _Change] = attrs.field(factory=dict, init=False)
    _removals: dict[str, int] = attrs.field(factory=lambda: defaultdict(int), init=False)
    _disk_failed: set[str] = attrs.field(factory=set, init=False)
    #: Each request by its name, with the node, and those that were refused.
    _asked: dict[str, _Asked] = attrs.field(factory=dict, init=False)
    _denied: set[str] = attrs.field(factory=set, init=False)
    #: Requests that commit, by the name of the one that has prepared the message; and those that send one back.
    _commits: dict[str, list[_Asked]] = attrs.field(factory=lambda: defaultdict(list), init=False)
    _backs: list[_Asked] = attrs.field(factory=list, init=False)
    #: The topics that a message has stood in, by the name of its request.
    _stood_in: dict[str, set[str]] = attrs.field(factory=lambda: defaultdict(set), init=False)
    _checks: Mapping[type[Event], Callable[[Any, ClusterView], str | None]] = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._checks = {
            ClientAccount: self._request,
            ClientAccountChange: self._change,
            LogAppend: self._append,
            StoreOpen: self._open,
            OperatorSetUpAnew: self._set_up_anew,
            StorageError: self._disk,
            StorageStuck: self._disk,
        }

    def check(self, event: Event, view: ClusterView) -> str | None:
        """One step of a client, of an administrator, or of a log."""
        return self._checks[type(event)](event, view)

    # --- accounts ---------------------------------------------------------------------------------------------------

    def _values(self, node: str, name: str) -> list[tuple[int, frozenset[_Value]]]:
        first: _Value = () if name == WHITE_LIST else ACCOUNTS_AT_FIRST.get(name)
        return self._possible.setdefault((node, name), [(0, frozenset({first}))])

    def _note(self, node: str, name: str, values: Iterable[_Value]) -> None:
        self._changes += 1
        self._values(node, name).append((self._changes, frozenset(values)))

    def _since(self, node: str, name: str, change: int) -> set[_Value]:
        """Every value that was possible from a change on."""
        found = set[_Value]()
        for number, values in reversed(self._values(node, name)):
            found |= values
            if number <= change:
                break
        return found

    def _change(self, event: ClientAccountChange, _: ClusterView) -> str | None:
        place = event.node, event.account
        what = f"{event.node} answers a change of {event.account or 'the white list'} with {event.status}"
        if event.detail == IMPOSSIBLE:
            if event.status == ResponseCode.SUCCESS.name:
                return f"{what}, and nobody can have such an account"
            return None if event.status == "asked" else self._wrong_refusal(event, what, may_fail=True)
        value: _Value = _white(event.detail) if event.account == WHITE_LIST else Account.of(event.detail)
        known = self._values(*place)[-1][1]
        if event.status in ("asked", "written"):
            self._under_way[place] = _Change(value, known, self._removals[event.node])
            self._note(*place, known | {value})
            return None
        asked = self._under_way.pop(place)
        if event.status in (ResponseCode.SUCCESS.name, "done"):
            if asked.removals == self._removals[event.node]:  # else the answer was sent before all was removed
                self._note(*place, {asked.value})
            return None
        # What an answer that is lost has deleted cannot be deleted again.
        return self._wrong_refusal(event, what, may_fail=asked.value is None and None in asked.before)

    def _wrong_refusal(self, event: ClientAccountChange, what: str, *, may_fail: bool) -> str | None:
        """What is wrong with another answer than SUCCESS; `may_fail`: whether the change need not be possible."""
        if event.status == DENIED:
            return f"{what}, and an administrator has asked"
        is_answered = event.status in ResponseCode.__members__ and event.status != ResponseCode.SYSTEM_BUSY.name
        is_explained = event.node in self._disk_failed or (may_fail and event.status.endswith("_FAILED"))
        return f"{what}, and no disk has failed" if is_answered and not is_explained else None

    def _set_up_anew(self, event: OperatorSetUpAnew, _: ClusterView) -> None:
        self._removals[event.node] += 1
        for node, name in list(self._possible):
            if node == event.node:
                first: _Value = () if name == WHITE_LIST else ACCOUNTS_AT_FIRST.get(name)
                self._note(node, name, {first})

    def _open(self, event: StoreOpen, _: ClusterView) -> None:
        self._disk_failed.discard(event.node)

    def _disk(self, event: StorageError | StorageStuck, _: ClusterView) -> None:
        self._disk_failed.add(event.node)

    # --- requests ---------------------------------------------------------------------------------------------------

    def _request(self, event: ClientAccount, view: ClusterView) -> str | None:
        record_topic = _topic_at(view.nodes[event.node], event.offset)
        if event.status == "asked":
            asked = _Asked(event, self._changes, record_topic)
            self._asked[event.key] = asked
            if event.operation == "commit":
                self._commits[event.about].append(asked)
            elif event.operation == "send_back":
                self._backs.append(asked)
            return None
        asked = self._asked[event.key]
        if record_topic != asked.record_topic:
            asked = attrs.evolve(asked, record_topic=None)
        verdicts = self._verdicts(asked)
        what = (
            f"{event.node} answers {event.operation} {event.key} of {event.account or 'nobody'} at {event.host} "
            f"with {event.status}, which needs {event.needs or 'an account'}"
        )
        if event.status == DENIED:
            self._denied.add(event.key)
            return f"{what}; they may ask it" if verdicts == {"may"} else None
        if event.status not in ResponseCode.__members__ or event.status == ResponseCode.SYSTEM_BUSY.name:
            return None
        if event.status == ResponseCode.REQUEST_CODE_NOT_SUPPORTED.name:
            return f"{what}; brokers know each of these requests"
        is_taken = ResponseCode[event.status] in STORED
        if verdicts == {"refused"} or (is_taken and verdicts <= _REFUSED):
            return f"{what}; they may not ask it"
        for topic in event.shown.split():
            if self._verdicts(asked, [need(topic, "PUB|SUB")]) <= _REFUSED:
                return f"{what}, and shows a message of {topic}, which they may not see"
        return f"{what}: {event.detail}" if event.detail else None

    def _verdicts(self, asked: _Asked, needs: Collection[str | None] | None = None) -> set[Verdict]:
        """What may become of a request, by what the accounts may have been since it was asked."""
        event = asked.event
        if needs is None:
            needs = [self._need(each, asked) for each in event.needs.split()]
        whites = self._since(event.node, WHITE_LIST, asked.change)
        accounts = self._since(event.node, event.account, asked.change) if event.account else {None}
        found = set[Verdict]()
        for account, white in itertools.product(accounts, whites):
            assert account is None or isinstance(account, Account)
            assert isinstance(white, tuple)
            found.add(verdict(account, white, asked.claim, needs))
        return found

    @staticmethod
    def _need(needed: str, asked: _Asked) -> str | None:
        """What is needed of the message that the log has where a request says; not known once that is another one."""
        if asked.event.offset < 0 or not needed.startswith(DEEP):
            return needed
        if asked.record_topic is None:
            return None
        _, _, any_of = needed.removeprefix(DEEP).split(":")
        return DEEP + need(asked.record_topic, any_of)

    # --- what is stored -----------------------------------------------------------------------------------------------

    def _append(self, event: LogAppend, view: ClusterView) -> str | None:
        node = view.master
        if event.node != node.name or not node.leads:
            return None
        log = node.lineage.log
        for at in node.lineage.records(event.offset, node.end):
            size, magic = BLANK.unpack_from(log, at)
            if magic == MESSAGE_MAGIC and log.find(MARK, at, at + size) >= 0:
                wrong = self._wrong_message(decode_message(memoryview(bytes(log[at : at + size]))))
                if wrong is not None:
                    return f"{node.name} has a message at {at}, {wrong}"
        return None

    def _wrong_message(self, message: StoredMessage) -> str | None:
        key = message.body.removeprefix(MARK).partition(b" ")[0].decode()
        asked = self._asked.get(key)
        if asked is None:
            return f"of the request {key!r}, which nobody has made"
        event, topic = asked.event, real_topic(message)
        what = f"in {message.topic}, of {event.operation} {key} of {event.account or 'nobody'}"
        if key in self._denied:
            return f"{what}, which was refused"
        if self._verdicts(asked) <= _REFUSED:
            return f"{what}, who may not send it: it needs {event.needs}"
        waits = message.topic in WAITING_TOPICS or message.topic.startswith((RETRY, _DEAD))
        if waits and PROPERTY_INNER_MULTI_QUEUE_OFFSET in message.properties:
            return f"{what}, and those who may receive from other topics get it"
        if topic.startswith((RETRY, _DEAD)) and topic != event.topic:
            return None if self._may_be_sent_back(key, topic) else f"{what}, and nobody who may has sent it back"
        self._stood_in[key].add(topic)
        if topic != event.topic:
            return f"{what}, which was sent to {event.topic}"
        if event.half and message.topic not in (HALF_TOPIC, CHECK_MAX_TIME_TOPIC):
            return None if self._may_any(self._commits[key]) else f"{what}, and nobody who may has committed it"
        return None

    def _may_be_sent_back(self, key: str, topic: str) -> bool:
        """Whether somebody has asked who may: another message may stand by now where a request says."""
        group = topic.removeprefix(RETRY).removeprefix(_DEAD)
        before = set(self._stood_in[key])
        self._stood_in[key].add(topic)
        return any(
            each.event.topic == RETRY + group
            and each.event.key not in self._denied
            and not self._verdicts(each, [of_group(group), DEEP + need(stood_in, "SUB")]) <= _REFUSED
            for each in self._backs
            for stood_in in (before or {topic})
        )

    def at_end(self, view: ClusterView) -> str | None:
        """Which topics and groups there are that an administrator makes."""
        for name, part in itertools.product(view.names, TABLES):
            for made in sorted(view.evidence.table(name, part)):
                key = made.removeprefix(MADE)
                if key != made and not self._may_any([self._asked[key]]):
                    return f"{name} has {made} among its {part}, and who asked for it may not make it"
        return None

    def _may_any(self, requests: Iterable[_Asked]) -> bool:
        return any(each.event.key not in self._denied and not self._verdicts(each) <= _REFUSED for each in requests)


def _white(text: str) -> tuple[str, ...]:
    return tuple(text.split(",")) if text else ()


def _topic_at(node: NodeView, offset: int) -> str | None:
    """The topic of the whole record that stands there in a node's log; None: there is none."""
    log = node.lineage.log
    if not node.begin <= offset < node.end or node.has_lost_power or node.lineage.whole_records(offset) != offset:
        return None
    size, magic = BLANK.unpack_from(log, offset)
    if magic != MESSAGE_MAGIC or offset + size > node.end:
        return None
    return real_topic(decode_message(memoryview(bytes(log[offset : offset + size]))))
