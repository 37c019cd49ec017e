"""What is done to a Java broker that is killed."""

from __future__ import annotations

from pathlib import Path

from tests.worlds.java_broker import JavaBroker
from tests.worlds.java_process import JavaRuntime


def test_files_that_a_killed_broker_was_about_to_create_are_removed(tmp_path: Path) -> None:
    """RocketMQ 4.9: "length not matched message store config value", and exit code 253 at each start."""
    broker = JavaBroker(tmp_path, JavaRuntime("java", ""))
    created = broker.store / "consumequeue" / "TopicInterop" / "1" / ("0" * 20)
    begun = broker.store / "commitlog" / f"{262144:020}"
    sized = broker.store / "commitlog" / ("0" * 20)
    abort = broker.store / "abort"
    for file, data in ((created, b""), (begun, b""), (sized, b"\0"), (abort, b"")):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)
    broker.kill()
    assert [file.exists() for file in (created, begun, sized, abort)] == [False, False, True, True]
