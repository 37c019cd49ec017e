"""The judge of accounts: who is refused, what is stored, and which changes hold."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from rmq_actors.testing.account_requests import MADE, MARK
from rmq_actors.testing.account_table import (
    ACCOUNTS_AT_FIRST,
    ADDRESS_BEFORE,
    ADMINISTRATOR,
    BY_ADMINISTRATOR,
    CHANGING,
    DEEP,
    OTHER_GROUP,
    OTHER_TOPIC,
    OWN_GROUP,
    OWN_TOPIC,
    RETRY,
    SHUT_TOPIC,
    VISITORS_ADDRESS,
    WHITE_LIST,
    WHITENED,
    Account,
    Claim,
    Verdict,
    need,
    of_group,
    verdict,
)
from rmq_actors.testing.invariants import Accounts
from rmq_actors.tracing.events.run import ClientAccount, ClientAccountChange
from rmq_actors.wire.dispatch_request import HALF_TOPIC, PROPERTY_INNER_MULTI_QUEUE_OFFSET, PROPERTY_REAL_TOPIC
from rmq_actors.wire.record import Message, encode_message
from tests.worlds.cluster_story import MASTER, SLAVE, Story
from tests.worlds.stranger_story import leads

Step = Callable[[Story], None]
ACCOUNT, ADMIN, NOBODY = ACCOUNTS_AT_FIRST["listed-account"], ACCOUNTS_AT_FIRST[ADMINISTRATOR], "powerless-account"
CHANGED = Account(CHANGING[1], secret=2, default_topic="PUB")
TO_OWN, TO_SHUT = need(OWN_TOPIC, "PUB"), need(SHUT_TOPIC, "PUB")
SEEN = DEEP + need(OWN_TOPIC, "PUB|SUB")


@pytest.mark.parametrize(
    ("account", "needs", "has"),
    [
        (ACCOUNT, [TO_OWN, of_group(OWN_GROUP)], True),
        (ACCOUNT, [TO_OWN, of_group(OTHER_GROUP)], False),
        (ACCOUNT, [TO_SHUT], False),
        (ACCOUNT, [need(OTHER_TOPIC, "PUB")], False),
        (ACCOUNT, [need(OTHER_TOPIC, "PUB|SUB")], True),
        (ACCOUNT, [need("AnyOther", "SUB")], False),
        (ACCOUNT, [need(RETRY + OWN_GROUP, "PUB")], True),
        (ACCOUNT, [BY_ADMINISTRATOR], False),
        (ADMIN, [BY_ADMINISTRATOR, TO_SHUT], True),
        (ACCOUNTS_AT_FIRST["limited-administrator"], [BY_ADMINISTRATOR], True),
        (ACCOUNTS_AT_FIRST["limited-administrator"], [BY_ADMINISTRATOR, TO_SHUT], False),
        (ACCOUNTS_AT_FIRST["default-account"], [TO_SHUT, of_group(OTHER_GROUP)], True),
        (ACCOUNTS_AT_FIRST["default-account"], [need(OWN_TOPIC, "SUB")], False),
        (ACCOUNTS_AT_FIRST[NOBODY], [], True),
    ],
)
def test_an_account_has_what_it_lists_and_else_its_defaults(account: Account, needs: list[str], has: bool) -> None:
    assert account.has(needs) is has


@pytest.mark.parametrize(
    ("account", "white", "claim", "needs", "said"),
    [
        (ACCOUNT, (), Claim(ACCOUNT.access_key, 0, "10.0.0.9"), [TO_OWN], "may"),
        (ACCOUNT, (), Claim(ACCOUNT.access_key, -1, "10.0.0.9"), [TO_OWN], "refused"),
        (ACCOUNT, (), Claim(ACCOUNT.access_key, 0, "10.0.0.9"), [DEEP + TO_SHUT], "refused_later"),
        (ACCOUNT, (), Claim(ACCOUNT.access_key, 0, "10.0.0.9"), [None], "unknown"),
        (ACCOUNT, (), Claim(ACCOUNT.access_key, 0, "10.0.0.9"), [None, TO_SHUT], "refused"),
        (None, (), Claim("", -1, "10.0.0.9"), [], "refused"),
        (None, ("10.0.0.9",), Claim("", -1, "10.0.0.9"), [BY_ADMINISTRATOR], "may"),
        (ACCOUNTS_AT_FIRST[WHITENED], (), Claim(WHITENED, -1, ADDRESS_BEFORE), [BY_ADMINISTRATOR], "may"),
        (ACCOUNTS_AT_FIRST[WHITENED], (), Claim(WHITENED, -1, VISITORS_ADDRESS), [], "refused"),
    ],
)
def test_what_becomes_of_a_request(
    account: Account | None, white: tuple[str, ...], claim: Claim, needs: list[str | None], said: Verdict
) -> None:
    assert verdict(account, white, claim, needs) == said


def test_an_account_is_read_as_it_is_told() -> None:
    assert [Account.of(each.text) for each in ACCOUNTS_AT_FIRST.values()] == [*ACCOUNTS_AT_FIRST.values()]
    assert Account.of("") is None
    assert "secret-" not in ACCOUNT.text


ASKED = ClientAccount(
    status="asked",
    operation="send",
    key="a1",
    account=ACCOUNT.access_key,
    secret=0,
    host="10.0.0.9",
    needs=TO_OWN,
    topic=OWN_TOPIC,
    about="",
    offset=-1,
    half=False,
    shown="",
    detail="",
)


def ask(*statuses: str, node: str = MASTER, **fields: object) -> Step:
    def play(story: Story) -> None:
        for status in statuses:
            values = {name: getattr(ASKED, name) for name in ClientAccount.field_names.values()}
            story.recorder.record(ClientAccount(**{**values, **fields, "status": status}), node)

    return play


def change(*statuses: str, to: Account | None = CHANGED, white: str | None = None, text: str | None = None) -> Step:
    name = CHANGED.access_key if white is None else WHITE_LIST
    detail = ("" if to is None else to.text) if white is None else white

    def play(story: Story) -> None:
        for status in statuses:
            told = ClientAccountChange(status=status, account=name, detail=detail if text is None else text)
            story.recorder.record(told, MASTER)

    return play


def append(key: str = "a1", topic: str = OWN_TOPIC, **properties: str) -> Step:
    def play(story: Story) -> None:
        leads(story)
        encoded = encode_message(Message(topic, MARK + key.encode() + b" x", 0, properties))
        encoded.place(queue_offset=0, physical_offset=0, store_timestamp_ms=0)
        story.append(MASTER, bytes(encoded.data))

    return play


def set_up_anew(story: Story) -> None:
    story.emit(MASTER, "operator.set_up_anew")


def disk_fails(story: Story) -> None:
    story.emit(MASTER, "storage.error", status="EIO", attributes={"operation": "sync", "path": "conf/plain_acl.yml"})


SHUT: dict[str, Any] = {"needs": TO_SHUT, "topic": SHUT_TOPIC}
BY_CHANGED: dict[str, Any] = {"account": CHANGED.access_key, "secret": CHANGED.secret}
WHITE: dict[str, Any] = {"account": "", "secret": -1}
ENTERED = {PROPERTY_INNER_MULTI_QUEUE_OFFSET: "0"}
REFUSED_CHANGE = "UPDATE_AND_CREATE_ACL_CONFIG_FAILED"


@pytest.mark.parametrize(
    ("steps", "breaks"),
    [
        ([ask("asked", "SUCCESS")], False),
        ([ask("asked", "denied")], True),
        ([ask("asked", "RemotingTimeoutError")], False),
        ([ask("asked", "SUCCESS", **SHUT)], True),
        ([ask("asked", "denied", **SHUT)], False),
        # Whoever may not ask is not told why it could not be done.
        ([ask("asked", "TOPIC_NOT_EXIST", **SHUT)], True),
        ([ask("asked", "SYSTEM_BUSY", **SHUT)], False),
        # A broker knows all that these clients ask.
        ([ask("asked", "REQUEST_CODE_NOT_SUPPORTED")], True),
        ([ask("asked", "SYSTEM_ERROR")], False),
        ([ask("asked", "SUCCESS", secret=-1)], True),
        # What a broker sees later may be refused for another reason before.
        ([ask("asked", "TOPIC_NOT_EXIST", needs=f"{TO_OWN} {DEEP}{TO_SHUT}")], False),
        ([ask("asked", "SUCCESS", needs=f"{TO_OWN} {DEEP}{TO_SHUT}")], True),
        ([ask("asked", "SUCCESS", operation="query", shown=OWN_TOPIC)], False),
        ([ask("asked", "SUCCESS", operation="query", shown=f"{OWN_TOPIC} {SHUT_TOPIC}")], True),
        ([ask("asked", "SUCCESS", detail="the answer has a secret key")], True),
        # What is stored.
        ([ask("asked", "SUCCESS"), append()], False),
        ([ask("asked"), append()], False),
        ([ask("asked", "oneway", **SHUT), append(topic=SHUT_TOPIC)], True),
        ([ask("asked", "oneway"), append(topic=SHUT_TOPIC)], True),
        ([append()], True),
        ([change("asked"), ask("asked", "denied", **BY_CHANGED), append()], True),
        ([change("asked"), ask("asked", **BY_CHANGED), append()], False),
        ([ask("asked"), append(topic=RETRY + OWN_GROUP)], True),
        (
            [
                ask("asked"),
                ask("asked", key="a2", operation="send_back", topic=RETRY + OWN_GROUP, needs=of_group(OWN_GROUP)),
                append(topic=RETRY + OWN_GROUP),
            ],
            False,
        ),
        (
            [
                ask("asked"),
                ask("asked", key="a2", operation="send_back", topic=RETRY + OTHER_GROUP, needs=of_group(OTHER_GROUP)),
                append(topic=RETRY + OTHER_GROUP),
            ],
            True,
        ),
        ([ask("asked", half=True), append(topic=HALF_TOPIC, **{PROPERTY_REAL_TOPIC: OWN_TOPIC})], False),
        ([ask("asked", half=True), append(topic=HALF_TOPIC, **{PROPERTY_REAL_TOPIC: SHUT_TOPIC})], True),
        ([ask("asked", half=True), append()], True),
        ([ask("asked", half=True), ask("asked", key="a2", operation="commit", about="a1"), append()], False),
        (
            [
                ask("asked", half=True),
                ask("asked", "denied", key="a2", operation="commit", about="a1", secret=-1),
                append(),
            ],
            True,
        ),
        # A message that waits, or is one group's, is not in other queues.
        ([ask("asked", half=True), append(topic=HALF_TOPIC, **{PROPERTY_REAL_TOPIC: OWN_TOPIC, **ENTERED})], True),
        ([ask("asked"), append(**ENTERED)], False),
        # A message that is looked at where it stands.
        (
            [ask("asked"), append(), ask("asked", "SUCCESS", key="a2", operation="view", offset=0, needs=SEEN)],
            False,
        ),
        (
            [ask("asked"), append(), ask("asked", "denied", key="a2", operation="view", offset=0, needs=SEEN)],
            True,
        ),
        # The log has another one there now, or none that is known.
        ([ask("asked", "denied", key="a2", operation="view", offset=5, needs=SEEN)], False),
        # Changes.
        ([ask("asked", "denied", **BY_CHANGED)], False),
        ([ask("asked", "SUCCESS", **BY_CHANGED)], True),
        ([change("asked"), ask("asked", "denied", **BY_CHANGED)], False),
        ([change("asked"), ask("asked", "SUCCESS", **BY_CHANGED)], False),
        ([change("asked", "SUCCESS"), ask("asked", "SUCCESS", **BY_CHANGED)], False),
        ([change("asked", "SUCCESS"), ask("asked", "denied", **BY_CHANGED)], True),
        ([change("asked", "RemotingTimeoutError"), ask("asked", "denied", **BY_CHANGED)], False),
        ([change("asked", "SUCCESS"), ask("asked", "SUCCESS", node=SLAVE, **BY_CHANGED)], True),
        ([ask("asked", **BY_CHANGED), change("asked", "SUCCESS"), ask("SUCCESS", **BY_CHANGED)], False),
        ([ask("asked", **BY_CHANGED), change("asked", "SUCCESS"), ask("denied", **BY_CHANGED)], False),
        ([change("asked", "SUCCESS"), set_up_anew, ask("asked", "denied", **BY_CHANGED)], False),
        ([change("asked", "SUCCESS"), set_up_anew, ask("asked", "SUCCESS", **BY_CHANGED)], True),
        ([change("asked"), set_up_anew, change("SUCCESS"), ask("asked", "denied", **BY_CHANGED)], False),
        (
            [change("asked", "SUCCESS"), change("asked", "SUCCESS", to=None), ask("asked", "SUCCESS", **BY_CHANGED)],
            True,
        ),
        ([change("written"), ask("asked", "denied", **BY_CHANGED)], False),
        ([change("written", "done"), ask("asked", "denied", **BY_CHANGED)], True),
        ([change("asked", "denied")], True),
        ([change("asked", REFUSED_CHANGE)], True),
        ([disk_fails, change("asked", REFUSED_CHANGE)], False),
        ([change("asked", "DELETE_ACL_CONFIG_FAILED", to=None)], False),
        ([change("asked", "SUCCESS"), change("asked", "DELETE_ACL_CONFIG_FAILED", to=None)], True),
        ([change("asked", REFUSED_CHANGE, text="?")], False),
        ([change("asked", "SUCCESS", text="?")], True),
        ([change("asked", "denied", text="?")], True),
        ([change("asked", "SYSTEM_ERROR", text="?")], True),
        ([change("asked", "SYSTEM_BUSY", text="?")], False),
        ([change("asked", "RemotingTimeoutError", text="?")], False),
        ([change("asked", "SYSTEM_ERROR")], True),
        ([disk_fails, change("asked", "SYSTEM_ERROR")], False),
        ([change("asked", "REQUEST_CODE_NOT_SUPPORTED")], True),
        ([change("asked", "SYSTEM_BUSY")], False),
        ([change("asked", "SUCCESS", white="10.0.0.9"), ask("asked", "SUCCESS", **SHUT, **WHITE)], False),
        ([change("asked", "SUCCESS", white="10.0.0.9"), ask("asked", "denied", **SHUT, **WHITE)], True),
        ([change("asked", "SUCCESS", white="10.0.0.90"), ask("asked", "SUCCESS", **SHUT, **WHITE)], True),
    ],
)
def test_what_is_answered_and_stored_is_what_the_accounts_allow(steps: list[Step], breaks: bool) -> None:
    story = Story()
    story.watch(Accounts)
    for step in steps:
        step(story)
    assert [each.invariant for each in story.broken] == ["accounts"] * breaks


@pytest.mark.parametrize(("account", "breaks"), [(ADMINISTRATOR, False), (NOBODY, True)])
def test_nobody_but_an_administrator_has_made_a_topic(account: str, breaks: bool) -> None:
    story = Story()
    story.watch(Accounts)
    ask("asked", "RemotingTimeoutError", account=account, needs=BY_ADMINISTRATOR, operation="make_topic")(story)
    story.tables[SLAVE, "topics"] = {f"{MADE}a1", "Other"}
    story.judge.check_end(0)
    assert [each.invariant for each in story.broken] == ["accounts"] * breaks
