"""The KV table: what a file gives, what is kept when, and that a failure changes nothing."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
import trio
import trio.testing

from rmq_actors.namesrv.kv_config import KVConfigManager
from rmq_actors.store.files.json_file import ConfigFileDamaged, JsonFile
from tests.worlds.faulty_disk import FaultyDisk

PATH = "namesrv/kvConfig.json"


def manager(tmp_path: Path, data: bytes | None = None) -> KVConfigManager:
    if data is not None:
        (tmp_path / PATH).parent.mkdir(exist_ok=True)
        (tmp_path / PATH).write_bytes(data)
    kv_config = KVConfigManager(JsonFile(FaultyDisk(tmp_path), PATH))
    kv_config.load()
    return kv_config


def run(use: Callable[[], Awaitable[None]]) -> None:
    trio.run(use)


@pytest.mark.parametrize("data", [None, b"", b"{}", b'{"configTable":null}', b'{"configTable":{}}'])
def test_nothing_is_an_empty_table(tmp_path: Path, data: bytes | None) -> None:
    kv_config = manager(tmp_path, data)
    assert kv_config.get("N", "k") is None
    assert kv_config.kv_list("N") is None


def test_a_file_of_rocketmq_is_read(tmp_path: Path) -> None:
    """As KVConfigSerializeWrapper.toJson writes it; fastjson makes text of what is none."""
    kv_config = manager(tmp_path, b'{"configTable":{"ORDER_TOPIC_CONFIG":{"T":"a:4;b:4"},"N":{"i":1,"b":true,7:"x"}}}')
    assert kv_config.get("ORDER_TOPIC_CONFIG", "T") == "a:4;b:4"
    assert kv_config.kv_list("N") == b'{"table":{"i":"1","b":"true","7":"x"}}'


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"{", r"line 1, column 2"),
        (b'{"configTable":{"N":{"k":\n}}}', r"line 2, column 1"),
        (b"[]", "the file is not a JSON object"),
        (b'{"configTable":[]}', "configTable is not a JSON object"),
        (b'{"configTable":{"N":"x"}}', r"configTable\.N is not a JSON object"),
        (b'{"configTable":{"N":{"k":["x"]}}}', r"configTable\.N\.k is not text"),
        (b'{"configTable":{"N":{"k":null}}}', r"configTable\.N\.k is not text"),
        (b'{"configTable":{{"a":1}:{}}}', "configTable is not a JSON object with text as keys"),
    ],
)
def test_a_damaged_file_is_named_with_the_place(tmp_path: Path, data: bytes, reason: str) -> None:
    with pytest.raises(ConfigFileDamaged, match=rf"^{PATH} cannot be read \({reason}"):
        manager(tmp_path, data)
    assert (tmp_path / PATH).read_bytes() == data


def test_what_is_put_is_in_the_file(tmp_path: Path) -> None:
    async def use() -> None:
        kv_config = manager(tmp_path)
        await kv_config.put("N", "k", "v")
        await kv_config.put("N", "l", "w")
        await kv_config.put("M", "k", "ä")
        assert json.loads((tmp_path / PATH).read_text()) == {
            "configTable": {"N": {"k": "v", "l": "w"}, "M": {"k": "ä"}}
        }
        again = manager(tmp_path)
        assert (again.kv_list("N"), again.get("M", "k")) == (b'{"table":{"k":"v","l":"w"}}', "ä")

    run(use)


def test_a_namespace_stays_when_its_last_value_goes(tmp_path: Path) -> None:
    async def use() -> None:
        kv_config = manager(tmp_path)
        await kv_config.put("N", "k", "v")
        await kv_config.delete("N", "k")
        assert kv_config.get("N", "k") is None
        assert kv_config.kv_list("N") == b'{"table":{}}'

    run(use)


def test_what_is_not_there_is_deleted_without_a_write(tmp_path: Path) -> None:
    async def use() -> None:
        kv_config = manager(tmp_path)
        await kv_config.delete("N", "k")
        assert not (tmp_path / PATH).exists()
        assert kv_config.kv_list("N") is None

    run(use)


def test_a_value_is_visible_when_it_is_durable_and_not_before(tmp_path: Path) -> None:
    async def use() -> None:
        disk = FaultyDisk(tmp_path)
        kv_config = KVConfigManager(JsonFile(disk, PATH))
        disk.sync_gate = trio.Event()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(kv_config.put, "N", "k", "v")
            nursery.start_soon(kv_config.put, "N", "l", "w")
            await trio.testing.wait_all_tasks_blocked()
            assert kv_config.kv_list("N") is None
            disk.sync_gate.set()
        assert (kv_config.get("N", "k"), kv_config.get("N", "l")) == ("v", "w")

    run(use)


def test_a_write_that_fails_changes_nothing(tmp_path: Path) -> None:
    async def use() -> None:
        disk = FaultyDisk(tmp_path)
        kv_config = KVConfigManager(JsonFile(disk, PATH))
        await kv_config.put("N", "k", "v")
        for change in (kv_config.put("N", "k", "w"), kv_config.delete("N", "k")):
            disk.failing_syncs = 1
            with pytest.raises(OSError, match="Input/output error"):
                await change
            assert kv_config.get("N", "k") == "v"
        await kv_config.put("N", "l", "x")
        assert manager(tmp_path).kv_list("N") == b'{"table":{"k":"v","l":"x"}}'

    run(use)
