"""What a simulated program does instead of reaching for the real world: the end of each refusal."""

from __future__ import annotations

import re
from typing import Final

# What the description of a call looks like, and what to do instead; the first that fits counts.
_REMEDIES: Final = tuple(
    (re.compile(pattern), remedy)
    for pattern, remedy in (
        ("a worker thread", "call the function in the task itself, and keep files on the node's disk (Node.disk)"),
        ("starting a thread", "start a task in a nursery"),
        ("starting a process", "boot another node of the world"),
        ("real (descriptor|socket)", "use trio.socket, trio.open_tcp_stream or trio.serve_tcp"),
        ("real name", "use trio.socket.getaddrinfo: names of nodes resolve"),
        (r"real (file|directory|database)|os\.(l?stat|access|chdir)\b", "use the node's disk (Node.disk)"),
        (
            r"\btime\.|datetime\.|os\.times",
            "use trio.current_time and trio.sleep, or the node's wall clock (Node.wall_clock)",
        ),
        (
            r"\brandom\.|uuid\.|secrets\.|os\.(urandom|getrandom)",
            "draw from the node's entropy (Node.entropy), or from a random.Random with a seed",
        ),
        (r"signal\.", "cancel a scope, or let the harness stop or kill the node"),
        ("garbage collector", "leave it off: a run collects by itself"),
        (r"terminal|os\.getp?pid", "give the program what it needs as an argument"),
    )
)


def remedy(what: str) -> str:
    """What to do instead of a call, by its description in a refusal."""
    return next(
        (remedy for pattern, remedy in _REMEDIES if pattern.search(what)), "leave it to the harness, outside of the run"
    )
