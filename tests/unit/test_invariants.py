"""Each invariant is seen to break, on a trace made by hand; a trace without fault breaks none."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from rmq_actors.testing.invariants.acknowledged import Acknowledged
from rmq_actors.testing.invariants.answer import ANSWER_MAX_S
from tests.worlds.cluster_story import A_BLANK, MASTER, OTHER, SLAVE, Story, cut, follow, halt


@pytest.fixture
def story() -> Story:
    """A put of 10 bytes that both slaves have and that one of them has reported."""
    story = Story()
    story.connect(1, "10.0.0.2")
    story.put(0, b"0123456789")
    story.append(SLAVE, b"0123456789")
    story.report(1, 10)
    story.append(OTHER, b"0123456789")
    return story


def test_a_run_as_it_should_be_breaks_nothing(story: Story) -> None:
    story.emit(MASTER, "ha.replicated", offset=10)
    story.answer(0, 10)
    story.emit(SLAVE, "node.kill")
    story.emit(SLAVE, "store.open", offset=10, status="clean")
    story.end()
    assert (story.seen, story.view.acked, story.view.unanswered, story.view.converged) == ([], 1, 0, True)


def test_prefix_other_bytes(story: Story) -> None:
    story.append(MASTER, b"abc")
    story.append(SLAVE, b"abX")
    assert story.seen == ["prefix"]
    assert "slave-1 differs from the master's log at offset 12" in str(story.broken[0])


def test_prefix_more_than_the_master_has(story: Story) -> None:
    story.append(SLAVE, b"x")
    assert story.seen == ["prefix"]


@pytest.mark.parametrize("offset", [9, 11])
def test_prefix_an_append_elsewhere(story: Story, offset: int) -> None:
    story.append(MASTER, bytes(10))
    story.logs[SLAVE] += bytes(10)
    story.emit(SLAVE, "log.append", offset=offset, size=1)
    assert story.seen[0] == "prefix"


@pytest.mark.parametrize(("takes_parts", "seen"), [(False, ["whole"]), (True, [])])
def test_whole_a_slave_appends_a_part_of_a_record(takes_parts: bool, seen: list[str]) -> None:
    story = Story(takes_parts=takes_parts)
    story.append(MASTER, b"abc")
    story.append(MASTER, b"def")
    story.append(SLAVE, b"abc")
    story.append(OTHER, b"abcdef")
    assert story.seen == []
    story.append(SLAVE, b"de")
    assert story.seen == seen


def test_report_of_what_the_slave_never_had(story: Story) -> None:
    story.append(MASTER, b"abc")
    story.report(1, 11)
    assert story.seen == ["report"]


def test_report_of_what_the_slave_has_no_more(story: Story) -> None:
    story.lose_power(SLAVE, 0)
    story.emit(SLAVE, "ha.client.report", offset=10)
    assert story.seen == ["report"]


def test_a_report_of_a_life_that_is_over_may_still_come(story: Story) -> None:
    story.lose_power(SLAVE, 0)
    story.report(1, 10)
    assert story.seen == []


def test_a_blank_that_recovery_took_for_whole_may_be_reported(story: Story) -> None:
    """A kill within a blank: its head alone makes it whole, and what was not received is zeros on both sides."""
    story.append(MASTER, b"8 bytes." + bytes(20))
    story.append(SLAVE, b"8 bytes.")
    story.emit(SLAVE, "node.kill")
    story.logs[SLAVE] += bytes(20)
    story.emit(SLAVE, "store.open", offset=38, status="clean")
    story.report(1, 38)
    assert story.seen == []


@pytest.mark.parametrize(("head", "end", "seen"), [(8, 30, []), (7, 30, ["survival"]), (8, 29, ["survival"])])
def test_a_blank_that_was_there_in_part_is_whole_for_the_next_master(
    story: Story, head: int, end: int, seen: list[str]
) -> None:
    story.append(MASTER, A_BLANK)
    story.append(SLAVE, A_BLANK[:head])
    story.promote(SLAVE, is_longest=True)
    story.logs[SLAVE] += bytes(end - len(story.logs[SLAVE]))
    story.emit(SLAVE, "store.open", offset=end, status="clean")
    story.append(SLAVE, b"new")
    story.append(OTHER, A_BLANK[:head])
    story.logs[OTHER] += bytes(30 - len(story.logs[OTHER]))
    story.emit(OTHER, "store.open", offset=30, status="clean")
    story.append(OTHER, b"new")
    assert story.seen[:1] == seen


def test_replicated_to_where_no_slave_is(story: Story) -> None:
    story.append(MASTER, b"abc")
    story.emit(MASTER, "ha.replicated", offset=13)
    assert story.seen == ["replicated"]


def test_replicated_what_others_have_already_of_the_next_masters_log(story: Story) -> None:
    """Its old master has come back with less before it was promoted."""
    story.lose_power(MASTER, 0)
    story.promote(SLAVE, is_longest=True)
    story.emit(SLAVE, "ha.replicated", offset=10)
    assert story.seen == []


def test_ack_of_what_no_slave_has(story: Story) -> None:
    story.put(1, b"abc")
    story.append(SLAVE, b"ab")
    story.answer(1, 13)
    assert story.seen == ["ack"]


@pytest.mark.parametrize(("sync_flush", "seen"), [((), []), ((SLAVE, OTHER), ["ack"])])
def test_ack_of_what_a_slave_has_lost_with_its_power(sync_flush: tuple[str, ...], seen: list[str]) -> None:
    """Its report may still have been under way. A slave that syncs first has lost nothing that it reported."""
    story = Story(sync_flush)
    story.put(0, b"abc")
    story.append(SLAVE, b"abc")
    story.lose_power(SLAVE, 0)
    story.answer(0, 3)
    assert story.seen == seen


@pytest.mark.parametrize(("again", "seen"), [(b"", []), (b"later", ["ack"])])
def test_ack_of_what_an_operator_has_removed_from_a_slave(again: bytes, seen: list[str]) -> None:
    """Its report may still have been under way; but not one of what comes later."""
    story = Story((SLAVE, OTHER))
    story.put(0, b"abc")
    story.append(SLAVE, b"abc")
    story.emit(SLAVE, "log.flush", offset=3)
    story.emit(SLAVE, "node.kill")
    story.emit(SLAVE, "operator.set_up_anew")
    story.logs[SLAVE].clear()
    story.emit(SLAVE, "store.open", offset=0, status="clean")
    if again:
        story.put(1, again)
    story.emit(MASTER, "log.flush", offset=len(story.logs[MASTER]))
    story.answer(1 if again else 0, len(story.logs[MASTER]))
    assert story.seen == seen


def test_an_ack_of_what_a_restart_has_cut_off_is_none(story: Story) -> None:
    story.put(1, b"abc")
    story.append(SLAVE, b"abc")
    story.emit(SLAVE, "node.kill")
    del story.logs[SLAVE][10:]
    story.emit(SLAVE, "store.open", offset=10, status="torn_tail_cut")
    assert story.seen == ["survival"]


def test_a_torn_last_record_is_no_loss(story: Story) -> None:
    story.append(MASTER, b"abc")
    story.append(SLAVE, b"ab")
    story.emit(SLAVE, "node.kill")
    del story.logs[SLAVE][10:]
    story.emit(SLAVE, "store.open", offset=10, status="torn_tail_cut")
    assert story.seen == []


@pytest.mark.parametrize(("sync_flush", "seen"), [((), []), ((MASTER,), []), ((SLAVE,), ["synced"])])
def test_synced_a_slave_reports(sync_flush: tuple[str, ...], seen: list[str]) -> None:
    story = Story(sync_flush)
    story.append(MASTER, b"abcdef")
    story.append(SLAVE, b"abcd")
    story.emit(SLAVE, "log.flush", offset=3)
    story.emit(SLAVE, "ha.client.report", offset=3)
    assert story.seen == []
    story.emit(SLAVE, "ha.client.report", offset=4)
    assert story.seen == seen


@pytest.mark.parametrize(("sync_flush", "seen"), [((), []), ((SLAVE,), []), ((MASTER,), ["synced"])])
def test_synced_a_master_sends(sync_flush: tuple[str, ...], seen: list[str]) -> None:
    story = Story(sync_flush)
    story.append(MASTER, b"abcdef")
    story.emit(MASTER, "log.flush", offset=3)
    story.emit(MASTER, "ha.transfer", conn_id=1, offset=1, size=2)
    assert story.seen == []
    story.emit(MASTER, "ha.transfer", conn_id=1, offset=3, size=1)
    assert story.seen == seen


@pytest.mark.parametrize(("sync_flush", "seen"), [((), []), ((SLAVE,), []), ((MASTER,), ["synced"])])
def test_synced_a_master_answers(sync_flush: tuple[str, ...], seen: list[str]) -> None:
    story = Story(sync_flush)
    story.put(0, b"abc")
    story.append(SLAVE, b"abc")
    story.emit(MASTER, "log.flush", offset=2)
    story.answer(0, 3)
    assert story.seen == seen


def test_synced_what_a_kill_has_left_is_not_synced() -> None:
    story = Story((SLAVE,))
    story.append(MASTER, b"abc")
    story.append(SLAVE, b"abc")
    story.emit(SLAVE, "log.flush", offset=3)
    story.emit(SLAVE, "node.kill")
    story.emit(SLAVE, "store.open", offset=3, status="clean")
    story.emit(SLAVE, "ha.client.report", offset=3)
    assert story.seen == ["synced"]


def test_survival_the_master_loses_a_record(story: Story) -> None:
    story.emit(MASTER, "node.kill")
    story.emit(MASTER, "store.open", offset=0, status="torn_tail_cut")
    assert story.seen == ["survival"]


@pytest.mark.parametrize("kind", ["node.kill", "node.stop"])
def test_survival_bytes_that_change_in_the_page_cache(story: Story, kind: str) -> None:
    story.logs[SLAVE][3] ^= 1
    story.emit(SLAVE, kind)
    assert story.seen == ["survival"]


@pytest.mark.parametrize("death", ["node.kill", "node.power_loss"])
def test_survival_recovery_keeps_a_torn_record(story: Story, death: str) -> None:
    story.append(MASTER, b"abc")
    story.append(SLAVE, b"ab")
    story.emit(SLAVE, death)
    story.emit(SLAVE, "store.open", offset=12, status="clean")
    assert story.seen == ["survival"]


@pytest.mark.parametrize(("kept", "seen"), [(10, []), (13, []), (0, ["survival"])])
@pytest.mark.parametrize("node", [MASTER, SLAVE])
def test_survival_a_power_loss_takes_nothing_that_was_synced(
    story: Story, node: str, kept: int, seen: list[str]
) -> None:
    story.append(MASTER, b"abc")
    if node == SLAVE:
        story.append(SLAVE, b"abc")
    story.emit(node, "log.flush", offset=10)
    story.lose_power(node, kept)
    assert story.seen[:1] == seen


def test_survival_other_bytes_after_a_power_loss(story: Story) -> None:
    story.logs[SLAVE][3] ^= 1
    story.lose_power(SLAVE, 10)
    assert story.seen == ["survival"]


def test_a_process_killed_before_it_has_opened_its_log_has_lost_nothing_more(story: Story) -> None:
    story.emit(SLAVE, "node.power_loss")
    story.logs[SLAVE].clear()
    story.emit(SLAVE, "node.kill")
    story.emit(SLAVE, "store.open", offset=0, status="clean")
    assert story.seen == []


def test_what_a_master_has_lost_with_its_power_may_be_written_anew() -> None:
    story = Story((MASTER,))
    story.append(MASTER, b"abc")
    story.emit(MASTER, "log.flush", offset=3)
    story.append(SLAVE, b"abc")
    story.append(OTHER, b"abc")
    story.append(MASTER, b"lost")
    story.lose_power(MASTER, 3)
    story.append(MASTER, b"new")
    story.append(SLAVE, b"new")
    story.append(OTHER, b"new")
    story.end()
    assert story.seen == []


@pytest.mark.parametrize(("sync_flush", "seen"), [((MASTER,), ["synced"]), ((), [])])
def test_synced_a_slave_has_what_the_master_has_lost(sync_flush: tuple[str, ...], seen: list[str]) -> None:
    """A master that does not sync first may lose it: its slaves are ahead then, and must notice."""
    story = Story(sync_flush)
    story.append(MASTER, b"0123456789")
    story.append(SLAVE, b"0123456789")
    story.lose_power(MASTER, 0)
    assert story.seen == seen
    assert story.view.lacks(story.view.nodes[SLAVE])


@pytest.mark.parametrize(
    ("node", "has", "kept", "seen"),
    [
        (OTHER, b"new", 6, ["synced"]),
        (OTHER, b"new", 0, ["synced"]),
        (OTHER, b"", 0, []),
        (MASTER, b"lost tail", 6, []),
    ],
)
def test_synced_a_slave_has_what_only_a_promoted_master_can_have_sent(
    node: str, has: bytes, kept: int, seen: list[str]
) -> None:
    """What it had when it was promoted, and has lost since, the others had by themselves; as an old master its tail."""
    story = Story((SLAVE,))
    for each in (MASTER, SLAVE, OTHER):
        follow(story, each)
        story.append(each, b"abc")
    story.append(MASTER, b"def")
    if node == MASTER:
        story.append(MASTER, has)
    story.promote(SLAVE, is_longest=False)
    story.append(SLAVE, b"def")  # sent before, and comes late
    story.append(OTHER, b"def")
    story.append(SLAVE, b"new")
    if node == OTHER:
        story.append(OTHER, has)
    story.lose_power(SLAVE, kept)
    assert story.seen == seen


def test_synced_a_promoted_master_that_has_lost_all_has_written_all_that_follows() -> None:
    story = Story((SLAVE,))
    for each in (MASTER, SLAVE):
        story.append(each, b"abc")
    story.promote(SLAVE, is_longest=True)
    story.lose_power(SLAVE, 0)
    for each in (SLAVE, OTHER):
        story.append(each, b"new")
    assert story.seen == []
    story.lose_power(SLAVE, 0)
    assert story.seen == ["synced"]


def test_several_puts_that_are_told_at_once_are_several() -> None:
    story = Story()
    for node in (MASTER, SLAVE):
        story.append(node, b"abcdef")
    story.emit(MASTER, "put.begin", msg_id=0, msg_id_last=1, offset=0, size=6)
    assert story.view.unanswered == 2
    story.emit(MASTER, "put.end", msg_id=0, msg_id_last=1, offset=6, status="PUT_OK")
    assert (story.seen, story.view.unanswered, story.view.acked) == ([], 0, 2)


@pytest.mark.parametrize(("waited_s", "seen"), [(ANSWER_MAX_S, []), (ANSWER_MAX_S + 0.001, ["answer"])])
@pytest.mark.parametrize("status", ["FLUSH_SLAVE_TIMEOUT", "PUT_OK"])
def test_answer_too_late(story: Story, waited_s: float, seen: list[str], status: str) -> None:
    story.now_s += waited_s
    story.answer(0, 10, status)
    assert story.seen == seen


@pytest.mark.parametrize(("node", "seen"), [(MASTER, []), (SLAVE, ["answer"])])
def test_answer_the_time_of_a_masters_pause_does_not_count(story: Story, node: str, seen: list[str]) -> None:
    story.now_s += 1
    story.emit(node, "node.pause")
    story.now_s += 6
    story.emit(node, "node.resume")
    story.now_s += ANSWER_MAX_S - 1
    story.answer(0, 10)
    assert story.seen == seen


def test_answer_a_pause_that_was_over_before_the_put_excuses_nothing(story: Story) -> None:
    story.emit(MASTER, "node.pause")
    story.now_s += 6
    story.emit(MASTER, "node.resume")
    story.put(1, b"abc")
    story.append(SLAVE, b"abc")
    story.now_s += ANSWER_MAX_S + 0.001
    story.answer(1, 13)
    assert story.seen == ["answer"]


def test_answer_a_pause_ends_with_its_process(story: Story) -> None:
    story.emit(MASTER, "node.pause")
    story.emit(MASTER, "node.kill")
    story.now_s += 6
    story.emit(MASTER, "store.open", offset=10, status="clean")
    story.put(1, b"abc")
    story.append(SLAVE, b"abc")
    story.now_s += ANSWER_MAX_S + 0.001
    story.answer(1, 13)
    assert story.seen == ["answer"]


@pytest.mark.parametrize("death", ["node.kill", "node.power_loss"])
def test_what_is_not_answered_is_counted_until_the_master_dies(story: Story, death: str) -> None:
    assert story.view.unanswered == 1
    story.emit(SLAVE, death)
    assert story.view.unanswered == 1
    story.emit(MASTER, death)
    assert story.view.unanswered == 0


def test_convergence_a_slave_that_is_short(story: Story) -> None:
    story.append(MASTER, b"abc")
    story.append(SLAVE, b"abc")
    assert not story.view.converged
    story.end()
    assert story.seen == ["convergence"]


def test_convergence_nothing_is_known_of_a_slave_that_has_lost_its_power(story: Story) -> None:
    story.emit(SLAVE, "node.power_loss")
    assert not story.view.converged
    story.emit(SLAVE, "store.open", offset=10, status="clean")
    assert story.view.converged


def test_convergence_bytes_that_changed_after_they_were_written(story: Story) -> None:
    story.logs[OTHER][0] ^= 1
    story.end()
    assert story.seen == ["convergence"]


def test_after_the_first_break_nothing_more_is_said(story: Story) -> None:
    story.append(SLAVE, b"x")
    before = story.judge.checks
    story.append(SLAVE, b"y")
    assert (story.seen, story.judge.checks) == (["prefix"], before)


@pytest.fixture
def parted(story: Story) -> Story:
    """A put is acknowledged, another one is the master's alone; then the slave is the master, and goes on."""
    story.answer(0, 10)
    story.append(MASTER, b"lost tail")
    story.emit(MASTER, "node.kill")
    story.promote(SLAVE, is_longest=True)
    story.append(SLAVE, b"regrown")
    assert story.seen == []
    return story


def test_after_a_fail_over_the_others_follow_the_new_master(parted: Story) -> None:
    assert not parted.view.converged
    parted.append(OTHER, b"regrown")
    halt(parted, MASTER)
    parted.kept[MASTER] = b"lost tail"
    cut(parted, MASTER, 10)
    parted.append(MASTER, b"regrown")
    parted.end()
    assert (parted.seen, parted.view.converged) == ([], True)


def test_who_has_halted_need_not_agree(parted: Story) -> None:
    parted.append(OTHER, b"regrown")
    halt(parted, MASTER)
    parted.end()
    assert (parted.seen, parted.view.converged) == ([], True)


def test_prefix_an_old_master_goes_on_behind_what_it_alone_has(parted: Story) -> None:
    follow(parted, MASTER, "10.0.0.2")
    parted.append(MASTER, b"regrown")
    assert parted.seen == ["prefix"]


def test_an_old_master_that_goes_on_as_one_has_a_log_of_its_own(parted: Story) -> None:
    """The slave was promoted too early: who follows the old master, in the term before, gets what that one writes."""
    for node in (MASTER, OTHER):
        parted.emit(
            node, "store.term", term=1, status="promoted" if node == MASTER else "adopted", leads=node == MASTER
        )
    follow(parted, OTHER, "10.0.0.1")
    parted.append(MASTER, b"alone")
    parted.append(OTHER, b"lost tail")
    parted.append(OTHER, b"alone")
    assert parted.seen == []
    parted.append(OTHER, b"more")
    assert parted.seen == ["prefix"]


def test_what_the_old_master_has_sent_may_still_arrive(parted: Story) -> None:
    parted.append(OTHER, b"lost tail")
    assert parted.seen == []
    assert parted.view.lacks(parted.view.nodes[OTHER])


def test_the_new_master_may_still_be_sent_what_others_have(story: Story) -> None:
    story.append(MASTER, b"sent late")
    story.append(OTHER, b"sent late")
    story.promote(SLAVE, is_longest=False)
    story.append(SLAVE, b"sent late")
    story.emit(SLAVE, "ha.replicated", offset=19)
    assert story.seen == []


@pytest.mark.parametrize(
    ("ahead_by", "kept", "needs_a_put"),
    [
        (b"", 10, False),
        (b"1234567", 10, True),
        (b"12345678", 10, False),
        (A_BLANK[:9], 10, True),
        (A_BLANK, 10, True),
        (A_BLANK + b"1234567", 10, True),
        (A_BLANK + b"12345678", 10, False),
        (b"12345678", 0, True),
    ],
)
def test_a_slave_that_cannot_know_its_log_is_another_waits_for_a_put(
    story: Story, ahead_by: bytes, kept: int, needs_a_put: bool
) -> None:
    if ahead_by:
        story.append(MASTER, ahead_by)
        story.append(SLAVE, ahead_by)
    story.lose_power(MASTER, kept)
    assert (story.seen, story.view.needs_a_put) == ([], needs_a_put)


def test_a_slave_that_can_know_its_log_is_another_waits_for_nothing(parted: Story) -> None:
    assert len(parted.logs[MASTER]) > len(parted.logs[SLAVE])
    assert not parted.view.needs_a_put


@pytest.fixture
def passed_over(story: Story) -> Story:
    """A slave is promoted while it does nothing, and another one in its place, before it has noticed."""
    follow(story, SLAVE)
    story.append(MASTER, b"sent late")
    story.promote(SLAVE, is_longest=True)
    story.promote(OTHER, is_longest=True)
    story.append(OTHER, b"regrown")
    return story


def test_what_was_sent_to_a_slave_may_still_arrive_when_it_is_the_master_no_more(passed_over: Story) -> None:
    passed_over.append(SLAVE, b"sent")
    passed_over.append(SLAVE, b" late")
    assert passed_over.seen == []
    assert passed_over.view.lacks(passed_over.view.nodes[SLAVE])
    halt(passed_over, SLAVE, master="10.0.0.3")
    passed_over.kept[SLAVE] = b"sent late"
    cut(passed_over, SLAVE, 10)
    passed_over.append(SLAVE, b"regrown")
    assert passed_over.seen == []


@pytest.mark.parametrize("then", ["follows the new master", "follows the old master", "starts anew"])
def test_prefix_what_was_sent_on_a_connection_that_is_gone(passed_over: Story, then: str) -> None:
    if then == "starts anew":
        passed_over.emit(SLAVE, "store.open", offset=10, status="clean")
        passed_over.emit(SLAVE, "store.term", term=2, status="resigned", leads=True)
    else:
        follow(passed_over, SLAVE, "10.0.0.3" if then == "follows the new master" else "10.0.0.1")
    passed_over.append(SLAVE, b"sent late")
    assert passed_over.seen == ["prefix"]


def test_prefix_what_a_master_has_who_was_never_followed(passed_over: Story) -> None:
    follow(passed_over, SLAVE, "10.0.0.1")  # the new master is the other slave
    passed_over.promote(MASTER, is_longest=False)
    passed_over.append(SLAVE, b"regrown")
    assert passed_over.seen == ["prefix"]


def test_prefix_an_old_master_goes_on_as_if_the_new_one_had_its_log(story: Story) -> None:
    story.append(MASTER, b"lost")
    story.promote(SLAVE, is_longest=True)
    story.append(SLAVE, b"regrown")
    follow(story, MASTER, "10.0.0.2")
    story.append(MASTER, b"own")
    assert story.seen == ["prefix"]
    assert "goes on at 14, its log diverges from the master's at 10" in str(story.broken[0])


def test_who_is_the_master_again_at_once_is_followed_on_the_same_connection(story: Story) -> None:
    follow(story, OTHER)
    story.promote(SLAVE, is_longest=True)
    story.promote(MASTER, is_longest=True)
    for node in (MASTER, OTHER):
        story.append(node, b"abc")
    assert story.seen == []


@pytest.mark.parametrize(
    ("arrived", "kept", "seen"), [(b"sent", 10, []), (b"sent late+", 19, []), (b"sent late", 10, ["survival"])]
)
def test_survival_what_was_sent_to_a_slave_arrives_before_it_begins_as_the_master(
    story: Story, arrived: bytes, kept: int, seen: list[str]
) -> None:
    """It opens its log again then, and cuts what it has in part."""
    follow(story, SLAVE)
    story.append(MASTER, b"sent late")
    story.append(MASTER, b"+ even later")
    story.promote(SLAVE, is_longest=True)
    story.append(SLAVE, arrived)
    del story.logs[SLAVE][kept:]
    story.emit(SLAVE, "store.open", offset=kept, status="torn_tail_cut")
    story.append(SLAVE, b"new")
    story.emit(SLAVE, "store.open", offset=kept + 3, status="clean")
    assert story.seen == seen


def test_who_is_promoted_has_halted_no_more(parted: Story) -> None:
    halt(parted, MASTER)
    assert parted.view.halted == [MASTER]
    parted.promote(MASTER, is_longest=False)
    assert parted.view.halted == []


@pytest.mark.parametrize(("status", "node"), [("diverged", OTHER), ("file_size_mismatch", MASTER)])
def test_divergence_halted_without_reason(parted: Story, status: str, node: str) -> None:
    halt(parted, node, status)
    assert parted.seen == ["divergence"]


@pytest.mark.parametrize(("offset", "kept"), [(0, b"0123456789lost tail"), (10, b"lost"), (12, b"st tail")])
def test_divergence_cut_elsewhere_or_not_kept(parted: Story, offset: int, kept: bytes) -> None:
    parted.kept[MASTER] = kept
    cut(parted, MASTER, offset)
    assert parted.seen == ["divergence"]


def test_divergence_what_was_kept_is_gone_at_the_end(parted: Story) -> None:
    parted.append(OTHER, b"regrown")
    parted.kept[MASTER] = b"lost tail"
    cut(parted, MASTER, 10)
    parted.append(MASTER, b"regrown")
    parted.kept.clear()
    parted.end()
    assert parted.seen == ["divergence"]


def test_divergence_what_was_kept_goes_with_all_that_a_slave_has(parted: Story) -> None:
    parted.append(OTHER, b"regrown")
    parted.kept[MASTER] = b"lost tail"
    cut(parted, MASTER, 10)
    parted.emit(MASTER, "operator.set_up_anew")
    parted.kept.clear()
    parted.logs[MASTER].clear()
    parted.emit(MASTER, "store.open", offset=0, status="clean")
    parted.append(MASTER, bytes(parted.logs[SLAVE]))
    parted.end()
    assert parted.seen == []


def test_a_truncation_that_a_kill_ends_is_one(parted: Story) -> None:
    halt(parted, MASTER)
    parted.kept[MASTER] = b"lost tail"
    parted.emit(MASTER, "node.kill")
    del parted.logs[MASTER][10:]
    parted.emit(MASTER, "store.open", offset=10, status="clean")
    assert parted.seen == []


@pytest.fixture
def half_cut(story: Story) -> Story:
    """The old master has two records that the new one lacks; a disk error ends their truncation after the first."""
    story.append(MASTER, b"lost tail")
    story.append(MASTER, b"more")
    story.emit(MASTER, "node.kill")
    story.promote(SLAVE, is_longest=True)
    story.append(SLAVE, b"regrown")
    halt(story, MASTER)
    del story.logs[MASTER][19:]
    return story


def test_a_truncation_that_a_disk_error_ends_early_is_made_again(half_cut: Story) -> None:
    half_cut.kept[MASTER] = b"more"
    half_cut.emit(MASTER, "store.open", offset=19, status="clean")
    assert (half_cut.view.halted, half_cut.view.converged) == ([], False)
    follow(half_cut, MASTER, "10.0.0.2")
    halt(half_cut, MASTER)
    half_cut.kept[MASTER] = b"lost tail"
    cut(half_cut, MASTER, 10)
    half_cut.append(MASTER, b"regrown")
    half_cut.append(OTHER, b"regrown")
    assert (half_cut.seen, half_cut.view.converged) == ([], True)


def test_prefix_what_half_a_truncation_has_left_is_not_continued(half_cut: Story) -> None:
    half_cut.kept[MASTER] = b"more"
    half_cut.emit(MASTER, "store.open", offset=19, status="clean")
    half_cut.append(SLAVE, b"and more")
    half_cut.append(MASTER, b"re")
    assert half_cut.seen == ["prefix"]


def test_survival_half_a_truncation_leaves_whole_records(half_cut: Story) -> None:
    half_cut.kept[MASTER] = b"ilmore"
    del half_cut.logs[MASTER][17:]
    half_cut.emit(MASTER, "store.open", offset=17, status="clean")
    assert half_cut.seen == ["survival"]


def test_divergence_what_half_a_truncation_has_taken_is_not_kept(half_cut: Story) -> None:
    half_cut.kept[MASTER] = b"mor"
    half_cut.emit(MASTER, "store.open", offset=19, status="clean")
    assert half_cut.seen == ["divergence"]


def test_divergence_half_a_truncation_says_that_it_is_done(half_cut: Story) -> None:
    half_cut.kept[MASTER] = b"more"
    half_cut.emit(MASTER, "log.truncate", offset=19, size=4)
    assert half_cut.seen == ["divergence"]


@pytest.mark.parametrize(("is_longest", "seen"), [(True, ["acknowledged"]), (False, [])])
def test_acknowledged_the_next_master_lacks_it(story: Story, is_longest: bool, seen: list[str]) -> None:
    story.put(1, b"abc")
    story.append(SLAVE, b"abc")
    story.answer(1, 13)
    story.promote(OTHER, is_longest=is_longest)
    assert story.seen == seen


@pytest.mark.parametrize(("own", "seen"), [(b"", ["acknowledged"]), (b"own", [])])
def test_acknowledged_only_slaves_that_have_followed_may_be_the_longest(
    story: Story, own: bytes, seen: list[str]
) -> None:
    """An old master whose log has parted has it too, and nobody can promote that one."""
    story.put(1, b"abc")
    story.append(SLAVE, b"abc")
    story.answer(1, 13)
    if own:
        story.append(MASTER, own)
    story.promote(SLAVE, is_longest=True)
    story.append(SLAVE, b"new")
    story.promote(OTHER, is_longest=True)
    assert story.seen == seen


def test_acknowledged_nobody_has_it_at_the_end(story: Story) -> None:
    story.put(1, b"abc")
    story.append(SLAVE, b"abc")
    story.answer(1, 13)
    story.promote(OTHER, is_longest=False)
    story.kept = {SLAVE: b"abc", MASTER: b"abc"}
    for node in story.kept:
        cut(story, node, 10)
    story.end()
    assert story.seen == []  # what was kept aside has survived


def test_acknowledged_what_a_power_loss_may_take_is_not_missed(story: Story) -> None:
    story.put(1, b"abc")
    story.append(SLAVE, b"abc")
    story.answer(1, 13)
    story.lose_power(SLAVE, 10)
    story.promote(OTHER, is_longest=True)
    assert story.seen == []


@pytest.mark.parametrize(("synced", "has_it"), [((), False), ((2,), False), ((3,), True), ((2, 3), True)])
def test_acknowledged_a_slave_has_what_it_has_synced_after_the_answer(synced: Sequence[int], has_it: bool) -> None:
    story = Story(sync_flush=(SLAVE,))
    story.watch(Acknowledged)
    story.put(0, b"abc")
    story.append(SLAVE, b"abc")
    story.answer(0, 3)
    for offset in synced:
        story.emit(SLAVE, "log.flush", offset=offset)
    story.promote(OTHER, is_longest=True)
    assert story.seen == (["acknowledged"] if has_it else [])


def test_acknowledged_a_slave_that_has_synced_another_log_has_not_what_it_had_written() -> None:
    story = Story(sync_flush=(SLAVE,))
    story.watch(Acknowledged)
    story.put(0, b"abc")
    story.append(SLAVE, b"abc")
    story.answer(0, 3)
    story.lose_power(SLAVE, 0)
    story.promote(OTHER, is_longest=False)
    story.logs[MASTER].clear()
    story.emit(MASTER, "operator.set_up_anew")
    for node in (OTHER, SLAVE):
        story.append(node, b"xyz")
    story.emit(SLAVE, "log.flush", offset=3)
    story.end()
    assert story.seen == []


def two_acknowledged(story: Story) -> int:
    """Two records, which the first slave has synced; where the first one ends."""
    for number in range(2):
        story.put(number, A_BLANK)
        story.append(SLAVE, A_BLANK)
        story.emit(SLAVE, "log.flush", offset=len(story.logs[SLAVE]))
        story.answer(number, len(story.logs[SLAVE]))
    return len(A_BLANK)


@pytest.mark.parametrize(
    ("rotten_record", "kept_records", "wanted_record"),
    [
        (None, 0, 1),
        (1, 0, None),
        (2, 1, 1),  # the first one was whole
        (2, 0, 1),  # and no damage explains that it is gone
    ],
)
@pytest.mark.parametrize("is_cut", [False, True])
def test_acknowledged_a_slave_whose_log_is_damaged_starts_without_what_comes_after_the_damage(
    rotten_record: int | None, kept_records: int, wanted_record: int | None, is_cut: bool
) -> None:
    """Nobody has any of it at the end. What was damaged may have been cut off since."""
    story = Story(sync_flush=(SLAVE,))
    story.watch(Acknowledged)
    size = two_acknowledged(story)
    if rotten_record is not None:
        story.rot(SLAVE, rotten_record * size - 10)
    story.lose_power(SLAVE, kept_records * size)
    if is_cut:
        cut(story, SLAVE, kept_records * size)
    story.promote(OTHER, is_longest=True)
    assert [each.detail for each in story.broken] == [
        f"a put that ends at {number * size} was answered PUT_OK, {SLAVE} had it; the next master, {OTHER}, lacks it"
        for number in [wanted_record]
        if number is not None
    ]


def test_ack_by_who_is_no_master(story: Story) -> None:
    story.promote(SLAVE, is_longest=True)
    story.answer(0, 10)
    assert story.seen == ["ack"]


def test_ack_one_slave_where_two_must_have_it() -> None:
    story = Story(acks=2)
    story.put(0, b"0123456789")
    story.append(SLAVE, b"0123456789")
    story.answer(0, 10)
    assert story.seen == ["ack"]


@pytest.mark.parametrize(("reports", "seen"), [(True, []), (False, ["ack"])])
def test_ack_two_connections_of_one_slave_count_as_two_if_the_lost_one_still_reports(
    *, reports: bool, seen: list[str]
) -> None:
    """The limit that docs/invariants.md states."""
    story = Story(acks=2)
    story.connect(1, "10.0.0.2")
    story.connect(2, "10.0.0.2")
    if reports:
        story.report(1, 0)
    story.put(0, b"0123456789")
    story.append(SLAVE, b"0123456789")
    story.answer(0, 10)
    assert story.seen == seen


@pytest.mark.parametrize(("node", "limits"), [(MASTER, 1), (OTHER, 0)])
def test_a_slave_that_follows_unasked_reaches_the_limit_if_its_log_parts(parted: Story, node: str, limits: int) -> None:
    end = len(parted.logs[node])
    follow(parted, node, "10.0.0.2")
    parted.now_s += 10
    parted.emit(node, "ha.client.compare", status="lookup_failed", offset=end, attributes={"questions": "1"})
    parted.emit(node, "ha.client.report", offset=end)
    assert (len(parted.limits), parted.seen) == (limits, [])


def test_acknowledged_what_a_slave_has_written_and_not_synced_is_not_asked_of_the_next_master() -> None:
    """The slave has lost its power, and has not come back yet."""
    story = Story(sync_flush=(SLAVE,))
    story.watch(Acknowledged)
    story.put(0, A_BLANK)
    story.append(SLAVE, A_BLANK)
    story.answer(0, len(A_BLANK))
    story.emit(SLAVE, "node.power_loss")
    story.promote(OTHER, is_longest=True)
    assert story.seen == []
