"""Slaves whose master goes while a record is under way to them: they follow the next one, by the seed.

python -m tests.simulation.part_of_record fail-over --seeds A:B --body-bytes N
    two slaves; the master is killed in a burst, the slave with the longest log promoted: the other one follows it
python -m tests.simulation.part_of_record chain --seeds A:B --body-bytes N
    a master, its slave, and a slave of that: the middle one is stopped in order, and comes back

Frames are of the default 32 KiB: of a longer record a slave is sent a part.
"""

from __future__ import annotations

import argparse
import logging
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import attrs
import trio

from rmq_actors.broker.config import BrokerConfig
from rmq_actors.store.config import BrokerRole
from rmq_actors.wire.record import BLANK, Message
from tests.worlds.name_server_world import Member
from tests.worlds.role_world import TOPIC, RoleWorld

FILE_BYTES = 1024 * 1024
PORT = 10911
HA_PORT = PORT + 1
_BURST = 40
#: A slave that cannot follow for a passing reason does so within this time.
_FOLLOWS_S = 60.0
FOLLOWS = "follows"


class ChainWorld(RoleWorld):
    """The last broker's master is the slave before it."""

    def broker_config(self, name: str) -> BrokerConfig:
        config = super().broker_config(name)
        if name != "a-2":
            return config
        middle = self.nodes["a-1"].address
        ha = attrs.evolve(config.ha_config, ha_master_address=f"{middle}:{HA_PORT}")
        return attrs.evolve(config, ha=ha, master_addr=f"{middle}:{PORT}")


def fail_over(seed: int, body_bytes: int) -> str:
    """What becomes of the slave that is not promoted: `FOLLOWS`, or why it does not."""
    servers, found = _world(RoleWorld, seed), list[str]()

    async def use() -> None:
        await _kill_in_a_burst(servers, "a-0", body_bytes, seed)
        await trio.sleep(1)
        found.extend(_parts(servers, "a-1", "a-2"))
        new, other = sorted(("a-1", "a-2"), key=lambda name: -servers.brokers[name].log.max_offset)
        assert await servers.change_role(new, BrokerRole.ASYNC_MASTER) is None
        found.append(await _what_follows(servers, new, other))

    servers.run_well(use)
    return "; ".join(found)


def chain(seed: int, body_bytes: int) -> str:
    """What becomes of the slave of a slave: `FOLLOWS`, or why it does not."""
    servers, found = _world(ChainWorld, seed), list[str]()

    async def use() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(servers.on_node, "a-0", lambda: _burst(servers, "a-0", body_bytes))
            await trio.sleep(_moment_s(seed))
            await servers.stop_broker("a-1")
            found.extend(_parts(servers, "a-2"))
            servers.boot("a-1")
        found.append(await _what_follows(servers, "a-0", "a-2"))

    servers.run_well(use)
    return "; ".join(found)


SCENARIOS: Mapping[str, Callable[[int, int], str]] = {"fail-over": fail_over, "chain": chain}


def _world(kind: type[RoleWorld], seed: int) -> RoleWorld:
    members = [Member(f"a-{number}", "broker-a", number) for number in range(3)]
    return kind.of(
        members=members,
        seed=seed,
        broker_role=BrokerRole.ASYNC_MASTER,
        mapped_file_size_commit_log_bytes=FILE_BYTES,
    )


def _moment_s(seed: int) -> float:
    """When in the burst it happens: another one for each seed."""
    return 0.005 + seed * 0.618_034 % 1 * 0.1


async def _burst(servers: RoleWorld, master: str, body_bytes: int) -> None:
    store = servers.controller(master).store
    for number in range(_BURST):
        store.puts.async_put_message(Message(TOPIC, bytes([1 + number]) * body_bytes))
        await trio.sleep(0.003)


async def _kill_in_a_burst(servers: RoleWorld, master: str, body_bytes: int, seed: int) -> None:
    servers.nodes[master].start_soon(_burst, servers, master, body_bytes)
    await trio.sleep(_moment_s(seed))
    servers.nodes[master].kill()


def _parts(servers: RoleWorld, *names: str) -> list[str]:
    """Which of the brokers' logs end with a part of a record."""
    return [f"{name} has a part of a record" for name in names if not ends_whole(servers, name)]


def ends_whole(servers: RoleWorld, name: str) -> bool:
    """Whether a broker's log ends where a record, or a file's blank end, does."""
    log = servers.brokers[name].log
    at = log.min_offset
    while at + BLANK.size <= log.max_offset:
        at += BLANK.unpack_from(log.select(at, BLANK.size))[0]
    return at == log.max_offset


def _log(servers: RoleWorld, name: str) -> bytes:
    log = servers.brokers[name].log
    return b"".join(bytes(view) for view in log.ranges(log.min_offset, log.max_offset))


async def _what_follows(servers: RoleWorld, master: str, slave: str) -> str:
    """Put once more, and see whether that gets there."""
    await servers.put(master, b"after that")
    with trio.move_on_after(_FOLLOWS_S):
        while _log(servers, slave) != _log(servers, master):
            await trio.sleep(0.5)
        return FOLLOWS
    followed = servers.controller(slave).followed_master
    halted = None if followed is None else followed.halted
    return "does not follow" if halted is None else f"halted: {halted.reason}"


def main(arguments: Sequence[str]) -> int:
    """See the module's docstring; 1 if a slave did not follow, or had a part of a record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scenario", choices=SCENARIOS)
    parser.add_argument("--seeds", default="0:20", help="from A to B - 1")
    parser.add_argument("--body-bytes", type=int, default=60_000)
    options = parser.parse_args(arguments)
    logging.getLogger("rmq_actors").setLevel(logging.CRITICAL)
    first, _, end = options.seeds.partition(":")
    outcomes = Counter(SCENARIOS[options.scenario](seed, options.body_bytes) for seed in range(int(first), int(end)))
    for outcome, count in outcomes.most_common():
        print(f"{count:6} {outcome}")
    return int(set(outcomes) != {FOLLOWS})


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
