"""What stands past a log's end: bytes of an unfinished record, whatever they look like, or a sign of damage."""

from __future__ import annotations

from pathlib import Path

import attrs
import pytest

from rmq_actors.real_io.os_disk import OsDisk
from rmq_actors.store.check.dump import Unreadable, read_commit_log
from rmq_actors.store.config import BrokerRole
from rmq_actors.store.files.layout import file_name
from rmq_actors.store.log.log_walk import DamagedLog
from rmq_actors.wire.record import Message, encode_message
from tests.unit.test_store_files import fill, offsets
from tests.worlds.store_on_disk import CONFIG, opened, wrong

SIZE = 2048
FORGED_BODY_AT = 50


def image(physical_offset: int, body: bytes = b"forged") -> bytes:
    """A whole record, as it is stored at an offset."""
    encoded = encode_message(Message("T", body, properties={"KEYS": "k"}))
    encoded.place(queue_offset=7, physical_offset=physical_offset, store_timestamp_ms=1_700_000_000_500)
    return bytes(encoded.data)


def carrier(offset: int) -> tuple[bytes, int]:
    """A record for `offset` whose body holds a whole record for the place where it comes to stand; where that ends."""
    body_at = len(image(0, b"")) - len(b"\x01T\x00\x07KEYS\x01k")
    forged = image(offset + body_at + FORGED_BODY_AT)
    data = image(offset, bytes(FORGED_BODY_AT) + forged + bytes(range(1, 100)))
    assert data.find(forged) == body_at + FORGED_BODY_AT
    return data, body_at + FORGED_BODY_AT + len(forged)


def write(root: Path, offset: int, data: bytes) -> None:
    with (root / "commitlog" / file_name(offset - offset % SIZE)).open("r+b") as file:
        file.seek(offset % SIZE)
        file.write(data)


def contents(root: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}


async def log_end(root: Path) -> int:
    async with opened(root) as files:
        return files.commit_log.max_offset


@pytest.mark.parametrize("role", [BrokerRole.SLAVE, BrokerRole.ASYNC_MASTER], ids=["again a slave", "promoted"])
@pytest.mark.parametrize("left_by", ["ours", "RocketMQ", "a crash"])
@pytest.mark.trio
async def test_an_image_in_the_body_of_an_unfinished_record_is_no_sign_of_damage(
    tmp_path: Path, left_by: str, role: BrokerRole
) -> None:
    """A producer who knows the log's end could make a slave unstartable that stopped within this message."""
    placed = await fill(tmp_path, 3)
    end = await log_end(tmp_path)
    data, forged_end = carrier(end)
    kept = contents(tmp_path)
    for cut in range(forged_end, len(data) - 20, 7):
        for path, content in kept.items():
            path.write_bytes(content)
        write(tmp_path, end, data[:cut])
        if left_by == "RocketMQ":
            (tmp_path / "checkpoint").unlink()
        elif left_by == "a crash":
            (tmp_path / "abort").touch()
        (finding,) = wrong(tmp_path)
        assert finding.text.endswith("bytes that hold no whole record"), cut
        async with opened(tmp_path, attrs.evolve(CONFIG, broker_role=role)) as files:
            assert files.commit_log.max_offset == end, cut
        assert not (tmp_path / "cut").exists()
    assert await offsets(tmp_path) == placed


@pytest.mark.trio
async def test_no_message_is_printed_from_within_an_unfinished_record(tmp_path: Path) -> None:
    await fill(tmp_path, 3)
    end = await log_end(tmp_path)
    data, forged_end = carrier(end)
    write(tmp_path, end, data[: forged_end + 5])
    *messages, last = read_commit_log(OsDisk(tmp_path))
    assert len(messages) == 3
    assert isinstance(last, Unreadable)
    assert (last.offset, last.resumes_at) == (end, None)


@pytest.mark.parametrize(
    ("at", "flip"),
    [(0, 0x04), (1, 0x01), (2, 0x01), (2, 0x02), (3, 0x40), (4, 0x10), (28, 0x01), (84, 0x01), (87, 0x10), (120, 0xFF)],
    ids=["size", "size", "size", "size", "size", "magic", "offset", "bodyLen", "bodyLen", "body"],
)
@pytest.mark.parametrize("record", [0, 1, 2])
@pytest.mark.trio
async def test_a_whole_record_after_a_damaged_one_is_still_found(
    tmp_path: Path, record: int, at: int, flip: int
) -> None:
    """A size of which a bit has flipped must not claim the records that follow for its own."""
    placed = await fill(tmp_path, 4)
    (tmp_path / "checkpoint").unlink()
    path = tmp_path / "commitlog" / file_name(0)
    data = bytearray(path.read_bytes())
    data[placed[record] + at] ^= flip
    path.write_bytes(data)
    with pytest.raises(DamagedLog, match=f"offset {placed[record]} .* one follows at offset {placed[record + 1]}"):
        await log_end(tmp_path)
    assert path.read_bytes() == data


@pytest.mark.trio
async def test_a_whole_record_after_what_a_torn_one_claims_is_damage(tmp_path: Path) -> None:
    await fill(tmp_path, 1)
    end = await log_end(tmp_path)
    (tmp_path / "checkpoint").unlink()
    data, forged_end = carrier(end)
    write(tmp_path, end, data[:forged_end] + b"flipped" + data[forged_end + 7 :])
    write(tmp_path, end + len(data), image(end + len(data)))
    with pytest.raises(DamagedLog, match=f"one follows at offset {end + len(data)}"):
        await log_end(tmp_path)
