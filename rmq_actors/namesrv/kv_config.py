"""Text by name space and key, kept in a file (KVConfigManager); brokers and clients read the order of topics there.

The file is RocketMQ's kvConfig.json, `{"configTable":{namespace:{key:value}}}`. A change is visible when it is durable.
"""

from __future__ import annotations

import attrs
import trio

from rmq_actors.store.files.json_file import JsonFile
from rmq_actors.wire.bodies.encoding import encode_body
from rmq_actors.wire.bodies.routes import KVTable
from rmq_actors.wire.fastjson import JsonValue

#: Key: a topic; value: its queues in order, "broker-a:4;broker-b:4" (orderTopicConf).
NAMESPACE_ORDER_TOPIC_CONFIG = "ORDER_TOPIC_CONFIG"

_Table = dict[str, dict[str, str]]


@attrs.define(eq=False, repr=False)
class KVConfigManager:
    """The table, and the file that it is kept in."""

    _file: JsonFile
    _table: _Table = attrs.field(factory=dict, init=False)
    _changing: trio.Lock = attrs.field(factory=trio.Lock, init=False)

    def load(self) -> None:
        """Read the file; none is an empty table. Raises `ConfigFileDamaged`."""
        self._table = self._file.load(_decode).value or {}

    def get(self, namespace: str, key: str) -> str | None:
        """A value, or None."""
        return self._table.get(namespace, {}).get(key)

    def kv_list(self, namespace: str) -> bytes | None:
        """The values of a name space as the body of a response (KVTable); None for one that was never written to."""
        values = self._table.get(namespace)
        return None if values is None else encode_body(KVTable(table=values))

    async def put(self, namespace: str, key: str, value: str) -> None:
        """Set a value; return when it is durable. A checkpoint. Raises `OSError`, `ValueError`: nothing was changed."""
        async with self._changing:
            values = {**self._table.get(namespace, {}), key: value}
            await self._change({**self._table, namespace: values})

    async def delete(self, namespace: str, key: str) -> None:
        """Remove a value, if it is there; its name space stays. A checkpoint. Raises as `put` does."""
        async with self._changing:
            values = dict(self._table.get(namespace, {}))
            if values.pop(key, None) is not None:
                await self._change({**self._table, namespace: values})

    async def _change(self, table: _Table) -> None:
        await self._file.persist({"configTable": table})
        self._table = table


def _decode(value: JsonValue) -> _Table:
    """Numbers and truth values become text, as in fastjson. Raises `ValueError` naming the place."""
    table = _object(value, "the file").get("configTable")
    return {
        namespace: {
            key: _text(item, f"configTable.{namespace}.{key}")
            for key, item in _object(values, f"configTable.{namespace}").items()
        }
        for namespace, values in _object(table, "configTable").items()
    }


def _object(value: JsonValue, where: str) -> dict[str, JsonValue]:
    if value is None:
        return {}
    if not isinstance(value, dict) or any(isinstance(key, tuple) for key in value):
        raise ValueError(f"{where} is not a JSON object with text as keys")
    return {str(key): item for key, item in value.items()}


def _text(value: JsonValue, where: str) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str | int | float):
        return str(value)
    raise ValueError(f"{where} is not text")
