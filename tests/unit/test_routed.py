"""The invariant `routed`: what name servers tell, and what they and slaves may forget."""

from __future__ import annotations

from typing import Any

import pytest

from rmq_actors.testing.invariants import Routed
from tests.worlds.cluster_story import MASTER, SLAVE, Story

NAMES = "names-1"
TOLD: dict[str, Any] = {"broker_id": 1, "ids": "1", "has_rival": False, "permission": 0, "told": 0}
OF_MASTER = TOLD | {"broker_id": 0, "ids": "0", "permission": 4, "told": 4}


def story() -> Story:
    made = Story()
    made.watch(Routed)
    return made


def registers(told: Story, status: str, address: str = "10.0.0.2:10911", broker_id: int = 1) -> None:
    told.emit(NAMES, "namesrv.register", status=status, **_broker(address, broker_id))


def leaves(told: Story, status: str, address: str = "10.0.0.2:10911", broker_id: int = 1) -> None:
    told.emit(NAMES, "namesrv.remove", status=status, **_broker(address, broker_id))


def _broker(address: str, broker_id: int) -> dict[str, Any]:
    of = {"broker.cluster": "c", "broker.name": "broker-a", "broker.id": broker_id, "broker.address": address}
    return {"conn_id": 1, "attributes": of}


@pytest.mark.parametrize(
    ("told", "seen"),
    [
        (TOLD, []),
        (OF_MASTER, []),
        (OF_MASTER | {"told": 6}, ["routed"]),
        (TOLD | {"ids": ""}, ["routed"]),
        (TOLD | {"ids": "", "has_rival": True}, []),
        (TOLD | {"ids": "0,1"}, ["routed"]),
        (TOLD | {"ids": "2", "has_rival": True}, ["routed"]),
    ],
)
def test_what_is_told_in_a_quiet_time(told: dict[str, Any], seen: list[str]) -> None:
    what = story()
    what.emit(NAMES, "name_server.tells", broker=SLAVE, **told)
    assert what.seen == seen


def test_a_slave_forgets_no_master() -> None:
    what = story()
    what.emit(SLAVE, "broker.master", master_addr="10.0.0.1:10911", ha_server_addr="")
    assert what.seen == []
    what.emit(SLAVE, "broker.master", master_addr="", ha_server_addr="")
    assert what.seen == ["routed"]


@pytest.mark.parametrize("status", ["unregistered", "closed", "expired"])
def test_a_broker_that_left_is_a_new_one(status: str) -> None:
    what = story()
    registers(what, "new")
    leaves(what, status)
    registers(what, "new")
    assert what.seen == []


def test_a_broker_with_another_id_is_a_new_one() -> None:
    what = story()
    registers(what, "new", broker_id=0)
    registers(what, "new", broker_id=1)
    registers(what, "renewed", broker_id=1)
    assert what.seen == []


def test_a_name_server_that_begins_knows_nobody() -> None:
    what = story()
    registers(what, "new")
    what.emit(NAMES, "name_server.empty")
    registers(what, "new")
    assert what.seen == []
    what.emit("names-2", "name_server.empty")
    registers(what, "new")
    assert what.seen == ["routed"]


@pytest.mark.parametrize("status", ["unregistered", "not_live"])
def test_a_name_server_forgets_nobody_for_another_one(status: str) -> None:
    """For example, for the name and id that both have."""
    what = story()
    registers(what, "new", MASTER)
    registers(what, "new")
    leaves(what, status, MASTER)
    registers(what, "renewed")
    assert what.seen == []
    registers(what, "new")
    assert what.seen == ["routed"]


def test_who_comes_too_late_is_not_taken_in() -> None:
    what = story()
    registers(what, "late")
    registers(what, "new")
    assert what.seen == []
