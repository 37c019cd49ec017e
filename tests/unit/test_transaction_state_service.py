"""Open transactions: which messages begin, end and replace them, the bytes of both files, and recovery."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pytest
import trio

from rmq_actors.real_io.os_disk import OsDisk
from rmq_actors.store.dispatch.consume_queue import ConsumeQueue
from rmq_actors.store.dispatch.transaction_state_service import (
    ENDS_SEVERAL_TAGS_CODE,
    TransactionStateService,
    record_reader,
)
from rmq_actors.store.files.mapped_file_queue import MappedFileQueue
from rmq_actors.wire.dispatch_request import CHECK_MAX_TIME_TOPIC, HALF_TOPIC
from tests.worlds.index_files import GOLDEN, FailingDisk, golden_requests
from tests.worlds.transaction_log import RECORD_BYTES, Log


def open_states(root: Path, log: Log, durable_to: int = 0, **options: Any) -> TransactionStateService:
    """Three entries a table file, four a redo log file."""
    service = TransactionStateService(
        OsDisk(root), log.read, **{"table_file_size_bytes": 72, "redo_log_file_size_bytes": 80, **options}
    )
    service.recover(durable_to)
    return service


def opened(service: TransactionStateService) -> list[int]:
    """The numbers of the open transactions' records, after a check that all files agree."""
    assert list(service.verify()) == []
    return [transaction.physical_offset // RECORD_BYTES for transaction in service.open_transactions()]


def table(root: Path) -> list[tuple[int, ...]]:
    data = b"".join(path.read_bytes() for path in sorted((root / "transaction/statetable").glob("*")))
    return [entry for entry in struct.iter_unpack(">qiiii", data) if entry[1]]


def redo_log(root: Path) -> list[tuple[int, ...]]:
    directory = root / "transaction/redolog/TRANSACTION_REDOLOG_TOPIC_XXXX/0"
    data = b"".join(path.read_bytes() for path in sorted(directory.glob("*")))
    return [entry for entry in struct.iter_unpack(">qiq", data) if entry[1]]


@pytest.fixture(name="log")
def make_log() -> Log:
    return Log()


# --- the golden log -------------------------------------------------------------------------------------------------


def test_the_golden_transactions_have_all_ended(tmp_path: Path) -> None:
    log = MappedFileQueue(OsDisk(GOLDEN / "store_slave_clean"), "commitlog", 262144)
    log.load(read_only=True)
    service = TransactionStateService(OsDisk(tmp_path), record_reader(log), table_file_size_bytes=24 * 50)
    service.recover(0)
    service.dispatch(golden_requests("store_slave_clean"))
    assert opened(service) == []
    states = {offset: state for offset, _, _, _, state in table(tmp_path)}
    # Sent: commit, roll back and unknown, three times. Each unknown one was put back once, checked, and committed.
    assert [states[offset] for offset in sorted(states)] == [8, 12, 12] * 3 + [8, 8, 8]
    assert {offset for offset, state in states.items() if state == 8} == {
        369802,
        371185,
        372568,
        376598,
        376900,
        377202,
    }
    assert struct.unpack(">i", struct.pack(">i", table(tmp_path)[0][3])) == (76091852,)  # "PG_tx".hashCode()
    log.close()


def test_before_their_ends_the_golden_transactions_are_open(tmp_path: Path) -> None:
    log = MappedFileQueue(OsDisk(GOLDEN / "store_slave_clean"), "commitlog", 262144)
    log.load(read_only=True)
    service = TransactionStateService(OsDisk(tmp_path), record_reader(log), table_file_size_bytes=24 * 50)
    service.recover(0)
    service.dispatch([each for each in golden_requests("store_slave_clean") if each.end_offset <= 377504])
    assert [each.physical_offset for each in service.open_transactions()] == [376598, 376900, 377202]
    log.close()


# --- bytes ----------------------------------------------------------------------------------------------------------


def test_the_bytes_of_both_files(tmp_path: Path, log: Log) -> None:
    service = open_states(tmp_path, log)
    log.put()
    log.prepare()
    log.prepare()
    log.end(2, 12)
    log.end(1)
    service.dispatch(log.requests)
    group_hash = ord("P") * 31 + ord("G")
    assert table(tmp_path) == [(100, 100, 1_700_000_000, group_hash, 8), (200, 100, 1_700_000_000, group_hash, 12)]
    assert redo_log(tmp_path) == [(100, 100, -1), (200, 100, -1), (300, 100, 200), (400, 100, 100)]
    assert service.state(0) == 8
    assert service.state(2) is None


def test_a_store_without_transactions_has_no_files(tmp_path: Path, log: Log) -> None:
    service = open_states(tmp_path, log)
    log.put()
    log.put("RMQ_SYS_TRACE_TOPIC")
    service.dispatch(log.requests)
    trio.run(service.flush)
    service.close()
    open_states(tmp_path, log, 200)
    assert list(tmp_path.iterdir()) == []


# --- what ends a transaction ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("sys_flag", [8, 12, 8 | 1])
def test_a_commit_or_rollback_of_3x_ends_it(tmp_path: Path, log: Log, sys_flag: int) -> None:
    service = open_states(tmp_path, log)
    log.prepare()
    log.prepare()
    log.end(0, sys_flag)
    service.dispatch(log.requests)
    assert opened(service) == [1]
    assert [entry[4] for entry in table(tmp_path)] == [sys_flag & 12, 4]


def test_the_end_of_another_group_or_of_nothing_ends_nothing(tmp_path: Path, log: Log) -> None:
    service = open_states(tmp_path, log)
    log.prepare()
    log.end(0, group="other")
    log.put(sys_flag=8, prepared=0)
    log.end(7)
    service.dispatch(log.requests)
    assert opened(service) == [0]
    assert len(redo_log(tmp_path)) == 1


def test_an_op_message_rolls_back_what_was_not_committed(tmp_path: Path, log: Log) -> None:
    service = open_states(tmp_path, log)
    for _ in range(3):
        log.half()
    log.end(1)
    log.op(b"1")
    log.op(b"0")
    service.dispatch(log.requests)
    assert opened(service) == [2]
    assert [entry[4] for entry in table(tmp_path)] == [12, 8, 4]
    assert redo_log(tmp_path)[3:] == [(300, 100, 100), (500, 100, 0)]


def test_an_op_message_may_name_several(tmp_path: Path, log: Log) -> None:
    service = open_states(tmp_path, log)
    for _ in range(4):
        log.half()
    log.prepare()  # not in the half queue, but at 0 in its own
    log.op(b"2,0,2,,x,77")
    service.dispatch(log.requests)
    assert opened(service) == [1, 3, 4]
    assert redo_log(tmp_path)[5:] == [(500, 100, ENDS_SEVERAL_TAGS_CODE)]
    service.close()
    assert opened(open_states(tmp_path, log, 600)) == [1, 3, 4]


@pytest.mark.parametrize(
    ("body", "tags"), [(b"0", "x"), (b"", "d"), (b"7", "d"), (b"-1", "d"), ("\u0660".encode(), "d"), (b"9" * 5000, "d")]
)
def test_an_op_message_that_says_nothing_ends_nothing(tmp_path: Path, log: Log, body: bytes, tags: str) -> None:
    service = open_states(tmp_path, log)
    log.half()
    log.op(body, tags)
    service.dispatch(log.requests)
    assert opened(service) == [0]


def test_two_that_say_that_they_are_one_half_message_both_end(tmp_path: Path, log: Log) -> None:
    """Half messages that also have the flag of 3.x all have queue offset 0."""
    service = open_states(tmp_path, log)
    for key in "ab":
        log.half(key)
        log.requests[-1] = log.requests[-1]._replace(consume_queue_offset=0)
    log.op(b"0")
    service.dispatch(log.requests)
    assert opened(service) == [0]
    log.put(CHECK_MAX_TIME_TOPIC, properties={"PGROUP": "PG", "UNIQ_KEY": "a"})
    service.dispatch(log.requests)
    assert opened(service) == []


def test_a_half_message_put_back_for_a_check_takes_the_others_place(tmp_path: Path, log: Log) -> None:
    service = open_states(tmp_path, log)
    log.half("a")
    log.half("b")
    log.half("a", checked=True)
    service.dispatch(log.requests)
    assert opened(service) == [1, 2]
    assert [entry[4] for entry in table(tmp_path)] == [12, 4, 4]
    assert redo_log(tmp_path)[-1] == (200, 100, -2)
    service.close()
    assert opened(open_states(tmp_path, log, 300)) == [1, 2]


def test_a_producer_that_sends_again_has_two_and_each_is_put_back(tmp_path: Path, log: Log) -> None:
    service = open_states(tmp_path, log)
    log.half("a")
    log.half("a")
    log.half("a", checked=True)
    service.dispatch(log.requests)
    assert opened(service) == [1, 2]
    log.half("a", checked=True)
    service.dispatch(log.requests)
    assert opened(service) == [2, 3]


@pytest.mark.parametrize("named", [b"0", b"0,7"])
def test_one_that_rocketmq_has_put_back_while_it_was_immune_ends_by_its_old_place(
    tmp_path: Path, log: Log, named: bytes
) -> None:
    """RocketMQ's producers know the old place alone; its check looks for both."""
    service = open_states(tmp_path, log)
    log.half("key")
    properties = {"PGROUP": "PG", "UNIQ_KEY": "key", "TRANSACTION_CHECK_TIMES": "1", "TRAN_PREPARED_QUEUE_OFFSET": "0"}
    log.put(HALF_TOPIC, properties=properties)
    service.dispatch(log.requests)
    assert opened(service) == [1]
    log.op(named)
    service.dispatch(log.requests)
    assert opened(service) == []
    service.close()
    assert opened(open_states(tmp_path, log, 300)) == []


def test_without_a_key_what_was_put_back_is_one_more(tmp_path: Path, log: Log) -> None:
    service = open_states(tmp_path, log)
    log.half()
    log.half(checked=True)
    service.dispatch(log.requests)
    assert opened(service) == [0, 1]


@pytest.mark.parametrize("key", ["key", ""])
def test_what_names_its_origin_takes_the_place_of_that_one_alone(tmp_path: Path, log: Log, key: str) -> None:
    """Others are open that have the same key, or none either."""
    service = open_states(tmp_path, log)
    for _ in range(3):
        log.half(key)
    again = {"PGROUP": "PG", "TRANSACTION_CHECK_TIMES": "1", "TRAN_ORIGIN_OFFSET": "100"}
    again |= {"UNIQ_KEY": key} if key else {}
    log.put(HALF_TOPIC, properties=again)
    service.dispatch(log.requests)
    assert opened(service) == [0, 2, 3]
    # RocketMQ goes on with the store, and copies what it does not know.
    log.put(HALF_TOPIC, properties=again | {"TRANSACTION_CHECK_TIMES": "2"})
    service.dispatch(log.requests)
    assert opened(service) == [0, 2, 4]
    found = service.open_of_origin(100)
    assert found is not None
    assert found.physical_offset == 400
    for orderly in (True, False):
        service.close()
        service = open_states(tmp_path, log, 500, is_orderly=orderly)
        assert opened(service) == [0, 2, 4]
    log.put(CHECK_MAX_TIME_TOPIC, properties=again)
    service.dispatch(log.requests)
    assert opened(service) == [0, 2]
    assert service.open_of_origin(100) is None
    # It was resumed, and ends none of the others.
    log.put(HALF_TOPIC, properties=again | {"TRANSACTION_CHECK_TIMES": "0"})
    service.dispatch(log.requests)
    assert opened(service) == [0, 2, 6]


def test_one_that_was_checked_too_often_is_rolled_back(tmp_path: Path, log: Log) -> None:
    service = open_states(tmp_path, log)
    log.half("a")
    log.half("b")
    log.put(CHECK_MAX_TIME_TOPIC, properties={"PGROUP": "PG", "UNIQ_KEY": "a"})
    log.put(CHECK_MAX_TIME_TOPIC, properties={"PGROUP": "PG"})
    service.dispatch(log.requests)
    assert opened(service) == [1]
    assert redo_log(tmp_path)[-1] == (200, 100, 0)


# --- repeats, errors ------------------------------------------------------------------------------------------------


def busy_log() -> Log:
    log = Log()
    log.prepare()
    log.half("a")
    log.put()
    log.half("b")
    log.end(0, 12)
    log.half("a", checked=True)
    log.half("c")
    log.half("d")
    log.end(3)
    log.op(b"1")
    log.prepare()
    log.op(b"2,3")
    log.prepare()
    return log


BUSY_OPEN = [7, 10, 12]


def test_what_comes_again_changes_nothing(tmp_path: Path) -> None:
    log = busy_log()
    service = open_states(tmp_path, log)
    for end in range(len(log.requests) + 1):
        service.dispatch(log.requests[max(0, end - 4) : end])
    assert opened(service) == BUSY_OPEN
    before = table(tmp_path), redo_log(tmp_path)
    service.dispatch(log.requests)
    assert (table(tmp_path), redo_log(tmp_path)) == before


def test_after_an_error_anywhere_the_batch_may_come_again(tmp_path: Path) -> None:
    log = busy_log()
    (tmp_path / "whole").mkdir()
    open_states(tmp_path / "whole", log).dispatch(log.requests)
    for nth in range(1, 100):
        root = tmp_path / str(nth)
        root.mkdir()
        disk = FailingDisk(root)
        service = TransactionStateService(disk, log.read, table_file_size_bytes=72, redo_log_file_size_bytes=80)
        service.recover(0)
        disk.operations_left = nth
        try:
            service.dispatch(log.requests)
            break
        except OSError:
            service.dispatch(log.requests)
        assert opened(service) == BUSY_OPEN, nth
        assert table(root) == table(tmp_path / "whole"), nth
        assert redo_log(root) == redo_log(tmp_path / "whole"), nth
    assert nth > 20


# --- recovery -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("end", range(14))
def test_an_end_that_is_no_longer_in_the_log_is_undone(tmp_path: Path, end: int) -> None:
    log = busy_log()
    service = open_states(tmp_path, log)
    service.dispatch(log.requests)
    service.close()
    (tmp_path / "other").mkdir()
    fresh = open_states(tmp_path / "other", log)
    fresh.dispatch(log.requests[:end])
    expected = opened(fresh)
    service = open_states(tmp_path, log, end * RECORD_BYTES)
    assert opened(service) == expected
    service.dispatch(log.requests[end:])
    assert opened(service) == BUSY_OPEN


def test_after_an_orderly_stop_the_table_is_read_as_it_is(tmp_path: Path) -> None:
    log = busy_log()
    service = open_states(tmp_path, log)
    service.dispatch(log.requests)
    transactions, before = list(service.open_transactions()), table(tmp_path)
    service.close()
    service = open_states(tmp_path, log, 5000, is_orderly=True)
    assert list(service.open_transactions()) == transactions
    assert table(tmp_path) == before
    assert opened(service) == BUSY_OPEN


def test_after_a_crash_the_table_holds_what_is_open(tmp_path: Path) -> None:
    log = busy_log()
    service = open_states(tmp_path, log)
    service.dispatch(log.requests)
    service.close()
    service = open_states(tmp_path, log, 5000)
    assert [entry[0] // RECORD_BYTES for entry in table(tmp_path)] == BUSY_OPEN
    assert opened(service) == BUSY_OPEN
    service.close()
    before = table(tmp_path), redo_log(tmp_path)
    open_states(tmp_path, log, 5000)
    assert (table(tmp_path), redo_log(tmp_path)) == before


@pytest.mark.parametrize("damage", ["state", "file", "reopened"])
def test_a_table_that_does_not_fit_is_made_again(tmp_path: Path, damage: str) -> None:
    log = busy_log()
    service = open_states(tmp_path, log)
    service.dispatch(log.requests)
    service.close()
    first = tmp_path / "transaction/statetable" / "0".zfill(20)
    data = bytearray(first.read_bytes())
    if damage == "file":
        first.unlink()
    else:
        data[20:24] = struct.pack(">i", 4 if damage == "reopened" else 5)
        first.write_bytes(data)
    assert opened(open_states(tmp_path, log, 5000, is_orderly=True)) == BUSY_OPEN


def test_after_rocketmq_all_is_made_again(tmp_path: Path) -> None:
    log = busy_log()
    service = open_states(tmp_path, log)
    service.dispatch(log.requests)
    service.close()
    service = TransactionStateService(OsDisk(tmp_path), log.read, is_trusted=False)
    assert service.recover(5000) == 0
    assert table(tmp_path) == redo_log(tmp_path) == []


@pytest.mark.parametrize(
    ("first_entries", "redo_from"),
    [([], 5000), ([struct.pack(">qiq", 300, 100, 0)], 300), ([b"", struct.pack(">qiq", 300, 100, 0)], 0)],
)
def test_rocketmqs_half_queues_say_where_transactions_begin(
    tmp_path: Path, first_entries: list[bytes], redo_from: int
) -> None:
    for queue_id, first in enumerate(first_entries):
        file = tmp_path / "consumequeue" / HALF_TOPIC / str(queue_id) / "0".zfill(20)
        file.parent.mkdir(parents=True)
        file.write_bytes(first)
    service = TransactionStateService(OsDisk(tmp_path), Log().read, is_trusted=False)
    assert service.recover(5000) == redo_from


# --- cleaning, checking ---------------------------------------------------------------------------------------------


def test_what_the_log_has_lost_goes(tmp_path: Path, log: Log) -> None:
    service = open_states(tmp_path, log)
    for _ in range(10):
        log.prepare()
    log.end(4)
    service.dispatch(log.requests)
    trio.run(service.flush)
    log.min_offset = 199
    assert service.delete_expired(199) == 0
    assert opened(service) == [2, 3, 5, 6, 7, 8, 9]
    log.min_offset = 600
    assert service.delete_expired(600) == 2
    assert [transaction.physical_offset for transaction in service.open_transactions()] == [600, 700, 800, 900]
    trio.run(service.flush)
    log.min_offset = 800
    assert service.delete_expired(800) == 2
    assert service.file_count == 7 - 4
    service.close()
    assert opened(open_states(tmp_path, log, 1100)) == [8, 9]


def test_an_orderly_stop_after_cleaning(tmp_path: Path, log: Log) -> None:
    service = open_states(tmp_path, log)
    for _ in range(8):
        log.prepare()
    service.dispatch(log.requests)
    trio.run(service.flush)
    log.min_offset = 500
    service.delete_expired(500)
    before = table(tmp_path)
    service.close()
    service = open_states(tmp_path, log, 800, is_orderly=True)
    assert opened(service) == [5, 6, 7]
    assert table(tmp_path) == before


def test_verify_names_what_does_not_fit(tmp_path: Path, log: Log) -> None:
    service = open_states(tmp_path, log)
    log.prepare()
    log.prepare()
    log.end(1)
    service.dispatch(log.requests)
    for number, state in enumerate((8, 4)):
        path = tmp_path / "transaction/statetable" / "0".zfill(20)
        data = bytearray(path.read_bytes())
        struct.pack_into(">i", data, 24 * number + 20, state)
        path.write_bytes(data)
    assert list(service.verify()) == [
        "tranStateTable: entry 0 of the open message at 0 is not prepared",
        "tranStateTable: entry 1 is prepared, but the message at 100 is not open",
    ]


def test_other_messages_are_passed_over(tmp_path: Path, log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    service = open_states(tmp_path, log)
    monkeypatch.setattr(ConsumeQueue, "put_message_position_info", None)
    log.put()
    log.put(sys_flag=1 | 16)
    service.dispatch(log.requests)
