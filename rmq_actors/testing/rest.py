"""Looks at brokers of which nobody wants anything: `tell_of_rest`."""

from __future__ import annotations

from collections import Counter
from typing import Final

import trio

from rmq_actors.store.lifecycle.clean_services import FIRST_ROUND_AFTER_S
from rmq_actors.testing.brokers import BrokersUnderTest
from rmq_actors.tracing.events.run import BrokerRest

#: How long brokers need to finish their work. Slaves ask for tables every ten seconds, and a store's first round of
#: cleaning comes a minute after it was opened.
_SETTLES_S: Final = FIRST_ROUND_AFTER_S + 15.0
_NAMED = 3


async def tell_of_rest(brokers: BrokersUnderTest, duration_s: float) -> None:
    """Let each broker be for `duration_s`, and tell in the trace what it did meanwhile: `broker.rest`."""
    await trio.sleep(_SETTLES_S)
    with brokers.world.usage() as usage:
        await trio.sleep(duration_s)
    for name in brokers.running:
        broker = brokers.broker(name)
        steps = Counter({task: count for (node, task), count in usage.steps.items() if node == name and _is_ours(task)})
        operations = Counter({what: count for (node, what), count in usage.disk_operations.items() if node == name})
        told = BrokerRest(
            role="SLAVE" if broker.config.is_slave else "MASTER",
            slaves=len(broker.ha_service.connections),
            duration_ns=round(duration_s * 1e9),
            steps=steps.total(),
            disk_operations=operations.total(),
            held_pulls=0 if broker.remoting is None else broker.remoting.held_pulls,
            detail=", ".join(f"{what} {count}" for what, count in [*steps.most_common(_NAMED), *operations.items()]),
        )
        brokers.recorder.record(told, name)


def _is_ours(task: str) -> bool:
    """Whether it is a task of the broker, and not of what the harness has it do."""
    return ".testing." not in task
