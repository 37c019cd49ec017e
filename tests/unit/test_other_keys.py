"""Keys in a file that are no settings: which stop a start, because something is meant by them that would not happen."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmq_actors.broker.config import BROKER_KEYS, BrokerConfig
from rmq_actors.embedding.broker import STORE_KEYS, load_broker_config
from rmq_actors.embedding.name_server import load_namesrv_config
from rmq_actors.embedding.tls_settings import TLS_KEYS
from rmq_actors.namesrv.config import NAMESRV_KEYS, NamesrvConfig
from rmq_actors.settings.configure import ConfigurationError, known_keys
from rmq_actors.settings.misspelt_keys import meant_key
from rmq_actors.settings.refused_keys import REFUSED_KEYS, why_refused
from rmq_actors.settings.rocketmq_keys import ROCKETMQ_5_KEYS, ROCKETMQ_KEYS

BROKER = {*known_keys(BrokerConfig, BROKER_KEYS), *STORE_KEYS, *TLS_KEYS}
NAMESRV = {*known_keys(NamesrvConfig, NAMESRV_KEYS), *TLS_KEYS}
#: Of other versions, or of people's own, as files on the net have them.
STRANGE = [
    "abortFile",
    "storeCheckpoint",
    "storePathConsumeQueue",
    "storePathIndex",
    "checkTransactionMessageEnable",
    "x",
]


@pytest.mark.parametrize("known", [BROKER, NAMESRV], ids=["broker", "namesrv"])
def test_every_known_key_is_found_by_one_mistake_in_it(known: set[str]) -> None:
    for key in sorted(known):
        for at in range(1, len(key)):
            for wrong in (
                key[:at] + key[at + 1 :],
                key[:at] + "q" + key[at:],
                key[: at - 1] + key[at] + key[at - 1] + key[at + 1 :],
            ):
                assert wrong in known or meant_key(wrong, known) is not None, wrong
        assert meant_key(key.lower(), known) == key


@pytest.mark.parametrize(
    ("key", "meant"),
    [
        ("brokerRol", "brokerRole"),
        ("brokrRole", "brokerRole"),
        ("broker_role", "brokerRole"),
        ("BROKERROLE", "brokerRole"),
        ("broker-id", "brokerId"),
        ("flushDiskTypes", "flushDiskType"),
        ("haMasterAdress", "haMasterAddress"),
        ("inSyncReplica", "inSyncReplicas"),
        ("mapedFileSizeCommitLog", "mappedFileSizeCommitLog"),  # of RocketMQ 3
        *((key, None) for key in STRANGE),
        ("brokerRole" * 100, None),
    ],
)
def test_which_key_is_meant(key: str, meant: str | None) -> None:
    assert meant_key(key, BROKER) == meant


def test_a_file_with_every_key_of_rocketmq_starts(tmp_path: Path) -> None:
    """Also where one resembles a key of this project: it is no mistake."""
    others = sorted((ROCKETMQ_KEYS | ROCKETMQ_5_KEYS) - BROKER - NAMESRV)
    assert [key for key in others if meant_key(key, BROKER)], "none resembles one: this tests nothing"
    path = tmp_path / "all.conf"
    path.write_text(
        "".join(
            f"{key}=false\n"
            for key in others
            if key not in {"messageStorePlugIn", "readOnlyCommitLogStorePaths", "storeType"}
        )
    )
    path.write_text(
        path.read_text()
        + "messageStorePlugIn=\nreadOnlyCommitLogStorePaths=\nstoreType=default\n"
        + "".join(f"{key}=1\n" for key in STRANGE)
    )
    for load in (lambda: load_broker_config(path).file, lambda: load_namesrv_config(path)):
        warnings = load().warnings
        assert len(warnings) == len(others) + len(STRANGE)
        assert [warning for warning in warnings if "did you mean" in warning] == []


def test_a_key_that_resembles_one_stops_the_start_and_all_of_them_are_named(tmp_path: Path) -> None:
    path = tmp_path / "x.conf"
    path.write_text("brokerRol=SLAVE\nownKey=1\nflushDiskTyp=SYNC_FLUSH\n")
    with pytest.raises(ConfigurationError) as caught:
        load_broker_config(path)
    assert str(caught.value) == (
        f"{path}, line 1: brokerRol is unknown: did you mean brokerRole?; "
        f"{path}, line 3: flushDiskTyp is unknown: did you mean flushDiskType?"
    )


REFUSED = {
    "enableDLegerCommitLog": " True ",
    "duplicationEnable": "true",
    "messageStorePlugIn": "org.apache.rocketmq.tieredstore.TieredMessageStore",
    "readOnlyCommitLogStorePaths": "/a,/b",
    "useTLS": "true",
    "enableControllerMode": "TRUE",
    "storeType": "defaultRocksDB",
    "authenticationEnabled": "true",
    "authorizationEnabled": "true",
}


def test_every_refused_key_is_rocketmq_s_and_no_setting_here() -> None:
    assert REFUSED.keys() == REFUSED_KEYS.keys()
    assert REFUSED.keys() <= ROCKETMQ_KEYS | ROCKETMQ_5_KEYS
    assert not REFUSED.keys() & (BROKER | NAMESRV)


@pytest.mark.parametrize("key", REFUSED)
def test_what_would_be_missed_silently_stops_the_start(key: str, tmp_path: Path) -> None:
    path = tmp_path / "x.conf"
    path.write_text(f"\n{key}={REFUSED[key]}\n")
    with pytest.raises(ConfigurationError, match=f"x.conf, line 2: {key}=.*: [a-z]"):
        load_broker_config(path)
    for value in ("false", "") if why_refused(key, "false") is None else ("",):
        path.write_text(f"{key}={value}\n")
        assert load_broker_config(path).file.warnings == [f"{path}, line 1: {key} has no effect here"]
