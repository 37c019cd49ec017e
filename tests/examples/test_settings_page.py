"""docs/settings.md says of every key of RocketMQ 4.9's broker what this one does with it, and says the truth."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from rmq_actors.broker.config import BROKER_KEYS, BrokerConfig
from rmq_actors.settings.configure import known_keys
from rmq_actors.settings.refused_keys import REFUSED_KEYS
from tests.worlds.rocketmq_settings import listed_keys

#: What `rmq-actors broker` takes apart from the settings of its class.
_OF_THE_COMMAND = {"storePathRootDir"}
_ROW = re.compile(r"^\| `(\w+)` \| (works|refused|ignored)(?:: (.+))? \|$", re.MULTILINE)
PAGE = Path(__file__).parents[2] / "docs/settings.md"


def rows() -> Mapping[str, list[tuple[str, str, str]]]:
    """Key, state and reason of each row, by the heading above it."""
    _, *parts = PAGE.read_text().split("\n## ")
    return {part.partition("\n")[0]: _ROW.findall(part) for part in parts}


def test_every_key_of_rocketmq_has_one_row() -> None:
    listed = {name.rpartition(".")[2]: keys for name, keys in listed_keys().items()}
    assert {heading: [key for key, _, _ in table] for heading, table in rows().items()} == listed
    assert len(listed["BrokerConfig"]) > 70


def test_a_key_works_is_refused_or_is_ignored_as_the_page_says() -> None:
    works = {*known_keys(BrokerConfig, BROKER_KEYS), *_OF_THE_COMMAND}
    for table in rows().values():
        for key, state, reason in table:
            assert state == ("works" if key in works else "refused" if key in REFUSED_KEYS else "ignored"), key
            assert bool(reason) is (state != "works"), key
            if state == "refused":
                assert reason == REFUSED_KEYS[key][1]
