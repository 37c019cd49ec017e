"""`rmq-actors store truncate`: what it cuts, and what it refuses."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

import rmq_actors.testing
from rmq_actors.broker.consumer_offsets import ConsumerOffsetManager
from rmq_actors.cli.main import app
from rmq_actors.real_io.os_disk import OsDisk
from rmq_actors.store.check.dump import Unreadable, read_commit_log
from rmq_actors.wire.record import StoredMessage

#: A store that a real master left: its log ends at 380417.
GOLDEN = Path(rmq_actors.testing.__file__).parent / "golden" / "store_master_clean"


@pytest.fixture
def store(tmp_path: Path) -> Path:
    shutil.copytree(GOLDEN, tmp_path / "store")
    (tmp_path / "broker.conf").write_text(
        f"storePathRootDir={tmp_path}/store\nmappedFileSizeCommitLog=262144\nmappedFileSizeConsumeQueue=2000\n"
        "maxHashSlotNum=500\nmaxIndexNum=2000\n"
    )
    return tmp_path / "store"


def cut(store: Path, *arguments: object, typed: str = "") -> Result:
    conf = str(store.with_name("broker.conf"))
    return CliRunner().invoke(app, ["store", "truncate", "-c", conf, *map(str, arguments)], input=typed)


def messages(store: Path) -> list[StoredMessage]:
    found = list(read_commit_log(OsDisk(store)))
    return [item for item in found if not isinstance(item, Unreadable)]


def test_the_log_ends_at_a_record_and_the_rest_is_kept(store: Path) -> None:
    before = messages(store)
    end = before[-10].physical_offset
    behind = b"".join(path.read_bytes() for path in sorted((store / "commitlog").iterdir()))[end:380417]
    done = cut(store, end, typed="y\n")
    assert done.exit_code == 0, done.output
    assert done.stdout.endswith(f"{store}: the log ends at {end}, {380417 - end} bytes are kept in cut/\n")
    assert messages(store) == before[:-10]
    assert {path.name: path.read_bytes() for path in (store / "cut").iterdir()} == {f"{end:020d}": behind}


def test_no_consumer_is_past_the_end_of_its_queue_then(store: Path) -> None:
    gone = messages(store)[-1]
    key = f"{gone.topic}@Group"
    table = store / "config" / "consumerOffset.json"
    table.write_text(f'{{"offsetTable":{{"{key}":{{{gone.queue_id}:{gone.queue_offset + 1}}}}}}}')
    done = cut(store, gone.physical_offset, "--yes")
    assert done.exit_code == 0, done.output
    offsets = ConsumerOffsetManager.load(OsDisk(store))
    assert offsets.query_offset("Group", gone.topic, gone.queue_id) == gone.queue_offset
    table.write_text("no table")
    table.with_name("consumerOffset.json.bak").unlink()
    done = cut(store, 0, "--yes")
    assert done.exit_code == 2
    assert "consumerOffset.json" in done.stderr
    assert messages(store)


def test_nothing_is_cut_where_no_record_ends_or_nobody_says_yes(store: Path) -> None:
    before = messages(store)
    end = before[-10].physical_offset
    assert cut(store, end, typed="n\n").exit_code == 1
    for offset, why in (
        (end + 1, f"no record ends at offset {end + 1}"),
        (1 << 40, f"offset {1 << 40} is not in the log"),
    ):
        done = cut(store, offset, "--yes")
        assert done.exit_code == 2
        assert f"{store}: {why}" in done.stderr
    assert messages(store) == before


def test_a_store_that_is_open_or_missing_is_named(store: Path) -> None:
    lock = OsDisk(store).lock("lock")
    done = cut(store, 0, "--yes")
    assert done.exit_code == 2
    assert f"{store}: a broker has the store open" in done.stderr
    lock.close()
    shutil.rmtree(store)
    done = cut(store, 0, "--yes")
    assert done.exit_code == 2
    assert f"{store}: no such directory" in done.stderr
    store.with_name("broker.conf").write_text("brokerRole=KING\n")
    assert "brokerRole=KING: it is one of" in cut(store, 0).stderr
