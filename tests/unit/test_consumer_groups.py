"""Groups by heartbeats: who is in them, what they subscribe, and when others are told."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rmq_actors.protocols.consumer_groups import (
    EXPIRED_S,
    LOST_GROUPS_MAX,
    Client,
    ConsumerGroups,
    ProducerGroups,
    expired,
)
from rmq_actors.wire.bodies.heartbeat import ConsumerData, ConsumeType, MessageModel, SubscriptionData
from tests.worlds.lines_run import lines_of


def client(name: str = "c", heard_of_s: float = 0.0) -> Client:
    return Client(name, "JAVA", 407, heard_of_s)


def data(group: str = "G", **versions: int) -> ConsumerData:
    return ConsumerData(
        group_name=group,
        consume_type=ConsumeType.CONSUME_PASSIVELY,
        message_model=MessageModel.CLUSTERING,
        subscription_data_set=[
            SubscriptionData(topic=topic, sub_string=f"v{version}", sub_version=version)
            for topic, version in versions.items()
        ],
    )


def test_others_are_told_of_members_and_topics_that_come_and_go_not_of_versions() -> None:
    groups = ConsumerGroups[str]()
    assert groups.register("one", client(), data(T=1))
    assert not groups.register("one", client(), data(T=1))
    assert groups.register("two", client("d"), data(T=1))
    assert not groups.register("two", client("d"), data(T=2))
    assert groups.register("two", client("d"), data(T=2, U=1))
    assert groups.register("one", client(), data(T=1))  # U is gone again, as this member knows none
    assert list(groups.groups["G"].subscriptions) == ["T"]
    assert groups.unregister("one", "G")
    assert not groups.unregister("one", "G")
    assert groups.members("G") == ("two",)


def test_the_later_version_of_a_subscription_counts_whoever_sends_it() -> None:
    groups = ConsumerGroups[str]()
    groups.register("new", client(), data(T=7))
    groups.register("old", client(), data(T=3))
    assert groups.groups["G"].subscriptions["T"].sub_string == "v7"


def test_a_connection_that_ends_leaves_all_its_groups_and_empty_ones_are_forgotten() -> None:
    groups = ConsumerGroups[str]()
    groups.register("one", client(), data("G", T=1))
    groups.register("one", client(), data("H", T=1))
    groups.register("two", client("d"), data("H", T=1))
    assert groups.closed("one") == ["G", "H"]
    assert list(groups.groups) == ["H"]
    assert groups.groups["H"].client_ids == ["d"]
    assert groups.members("G") == ()


def test_producers_come_and_go() -> None:
    groups = ProducerGroups[str]()
    groups.register("one", client(), "P")
    groups.register("one", client(), "Q")
    groups.register("two", client("d"), "Q")
    groups.unregister("one", "P")
    groups.unregister("one", "Nothing")
    assert list(groups.groups) == ["Q"]
    groups.closed("one")
    assert {name: list(members) for name, members in groups.groups.items()} == {"Q": ["two"]}
    groups.closed("two")
    assert groups.groups == {}


def test_a_group_is_remembered_that_its_last_producer_did_not_leave_but_lost() -> None:
    groups = ProducerGroups[str]()
    assert groups.members("P") is None
    groups.register("one", client(), "P")
    groups.register("two", client("d"), "P")
    groups.closed("one")
    assert list(groups.members("P") or {}) == ["two"]
    groups.closed("two")
    assert groups.members("P") == {}
    groups.register("three", client("e"), "P")
    groups.unregister("three", "P")
    assert groups.members("P") is None


def test_as_many_lost_groups_are_remembered_as_there_may_be() -> None:
    groups = ProducerGroups[str]()
    for number in range(LOST_GROUPS_MAX + 1):
        groups.register("one", client(), f"P{number}")
    groups.closed("one")
    assert groups.members("P0") is None
    assert groups.members("P1") == groups.members(f"P{LOST_GROUPS_MAX}") == {}


def test_a_client_expires_when_nothing_was_heard_for_longer_than_two_minutes() -> None:
    groups = ConsumerGroups[str]()
    groups.register("early", client("a", 0.0), data(T=1))
    groups.register("late", client("b", 1.0), data(T=1))
    assert expired(groups.clients(), EXPIRED_S) == set()
    assert expired(groups.clients(), EXPIRED_S + 0.5) == {"early"}


def test_a_producer_is_found_on_its_last_channel_until_it_has_left_its_last_group() -> None:
    groups = ProducerGroups[str]()
    groups.register("before", client("c-1"), "G1")
    groups.register("after", client("c-1"), "G1")
    groups.register("after", client("c-1"), "G2")
    assert groups.find_channel("c-1") == "after"
    groups.closed("before")
    assert groups.find_channel("c-1") == "after"
    groups.unregister("after", "G1")
    assert groups.find_channel("c-1") == "after"
    groups.unregister("after", "G2")
    assert groups.find_channel("c-1") is None
    groups.unregister("after", "G2")
    assert groups.find_channel("c-1") is None


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["heartbeat", "produce", "leave", "stop", "close"]),
            st.sampled_from(["one", "two", "three"]),
            st.sampled_from(["G", "H"]),
            # What a heartbeat says of the group: some say it twice.
            st.lists(st.dictionaries(st.sampled_from(["T", "U"]), st.sampled_from([0, 1, 10])), max_size=2),
        )
    )
)
def test_what_is_counted_is_what_there_is(steps: list[tuple[str, str, str, list[dict[str, int]]]]) -> None:
    consumers, producers = ConsumerGroups[str](), ProducerGroups[str]()
    for step, channel, group, told in steps:
        if step == "heartbeat":
            wanted = [data(group, **versions) for versions in told]
            memberships, size_bytes = consumers.memberships, consumers.subscriptions_bytes
            added, added_bytes = consumers.added_by(channel, wanted)
            for each in wanted:
                consumers.register(channel, client(), each)
            assert consumers.memberships == memberships + added
            assert consumers.subscriptions_bytes == size_bytes + added_bytes
        elif step == "produce":
            memberships = producers.memberships + producers.added_by(channel, [group])
            producers.register(channel, client(), group)
            assert producers.memberships == memberships
        elif step == "leave":
            consumers.unregister(channel, group)
        elif step == "stop":
            producers.unregister(channel, group)
        else:
            consumers.closed(channel)
            producers.closed(channel)
        assert consumers.memberships == len(list(consumers.clients()))
        assert producers.memberships == len(list(producers.clients()))
        assert consumers.subscriptions_bytes == sum(each.subscriptions_bytes for each in consumers.groups.values())


def test_what_a_connection_that_ends_costs_does_not_depend_on_other_groups() -> None:
    def lines_with(others: int) -> tuple[int, int]:
        consumers, producers = ConsumerGroups[str](), ProducerGroups[str]()
        for channel, names in (("other", range(others)), ("ends", range(others - 2, others + 2))):
            for number in names:
                consumers.register(channel, client(channel), data(f"G{number}", T=1))
                producers.register(channel, client(channel), f"G{number}")
        return lines_of(lambda: consumers.closed("ends")), lines_of(lambda: producers.closed("ends"))

    assert lines_with(10) == lines_with(1000)
