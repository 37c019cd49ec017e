"""Tasks as text, for reports of deadlocks and livelocks: node, number, name and where each one waits."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import PurePath
from typing import TYPE_CHECKING

import trio

from sim_net.kernel.identity import current_incarnation

if TYPE_CHECKING:
    from types import FrameType

    from trio.lowlevel import Task

_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")
_LIBRARY = PurePath(trio.__file__).parent
#: A task that waits on a simulated socket is shown where the program calls it, as one on a real socket.
_SOCKETS = tuple(
    PurePath(__file__).parents[1] / "net" / f"{name}.py" for name in ("socket", "stream_socket", "datagram_socket")
)


def stable_name(name: str) -> str:
    """A task's name without memory addresses (Trio falls back to `repr`), so that two processes agree on it."""
    return _ADDRESS.sub("", name) if " at 0x" in name else name


def task_token(number: int, task: Task) -> bytes:
    """What stands for a task in the digest; `describe_token` reads it."""
    incarnation = task.context.get(current_incarnation)
    node = "" if incarnation is None else f"{incarnation.node.name}#{incarnation.number}"
    return b"%s%s\0%s\0" % (number.to_bytes(4, "little"), stable_name(task.name).encode(), node.encode())


def describe_token(token: bytes) -> str:
    """Number, name and node of a task that may be long gone."""
    name, node, _ = token[4:].decode().split("\0")
    node, _, number = node.rpartition("#")
    place = f" on node {node} (incarnation {number})" if node else ""
    return f"task {int.from_bytes(token[:4], 'little')} {name}{place}"


def describe_task(task: Task, number: int | None = None) -> str:
    """One line: number if it is known, name, node and the line of the program that the task is at."""
    incarnation = task.context.get(current_incarnation)
    node = ""
    if incarnation is not None:
        paused = ", paused" if incarnation.pauses else ""
        node = f" on node {incarnation.node.name} (incarnation {incarnation.number}{paused})"
    return f"task {'' if number is None else f'{number} '}{stable_name(task.name)}{node}{_where(task)}"


def format_task_tree(numbers: Mapping[Task, int]) -> str:
    """The tasks of the running `trio.run`, children indented under their parents, in order of spawning."""
    lines: list[str] = []

    def add(task: Task, depth: int) -> None:
        lines.append("  " * depth + describe_task(task, numbers.get(task)))
        for nursery in task.child_nurseries:
            for child in sorted(nursery.child_tasks, key=lambda each: numbers.get(each, -1)):
                add(child, depth + 1)

    root = trio.lowlevel.current_root_task()
    if root is not None:
        add(root, 0)
    return "\n".join(lines)


def _where(task: Task) -> str:
    place: FrameType | None = None
    line = 0
    for frame, line_number in task.iter_await_frames():
        path = PurePath(frame.f_code.co_filename)
        if place is not None and (path.is_relative_to(_LIBRARY) or path in _SOCKETS):
            break
        place, line = frame, line_number
    if place is None:
        return ""
    return f", in {place.f_code.co_qualname} ({PurePath(place.f_code.co_filename).name}:{line})"
