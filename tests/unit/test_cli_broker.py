"""`rmq-actors broker` and `broker-admin` as processes: what they print, how they end, what the file says afterwards."""

from __future__ import annotations

import contextlib
import gc
import json
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio
from typer.testing import CliRunner, Result

import rmq_actors.cli.broker as broker_command
import rmq_actors.testing
from rmq_actors.cli.broker_status import status_lines
from rmq_actors.cli.entry import GC_THRESHOLD
from rmq_actors.cli.exit_codes import ExitCode
from rmq_actors.cli.main import app
from rmq_actors.embedding.broker import load_broker_config
from rmq_actors.settings.configure import ConfigurationError
from rmq_actors.wire.bodies.ha_runtime_info import HAClientRuntimeInfo, HAConnectionRuntimeInfo, HARuntimeInfo

pytestmark = pytest.mark.processes

COMMAND = (sys.executable, "-m", "rmq_actors.cli.entry")
#: A store that a real master left.
GOLDEN = Path(rmq_actors.testing.__file__).parent / "golden" / "store_master_clean"
GOLDEN_END = 380417
GOLDEN_SIZES = ("mappedFileSizeConsumeQueue=2000", "maxHashSlotNum=500", "maxIndexNum=2000")
EXAMPLES = Path(__file__).parents[2] / "examples" / "two_masters_two_slaves"


@pytest.fixture(autouse=True)
def no_settings_from_outside(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("NAMESRV_ADDR", "ROCKETMQ_HOME", "ROCKETMQ_ACCESS_KEY", "ROCKETMQ_SECRET_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "user"))


def conf(tmp_path: Path, *lines: str, name: str = "broker") -> Path:
    path = tmp_path / f"{name}.conf"
    own = ("listenPort=0", f"storePathRootDir={tmp_path}/{name}", "mappedFileSizeCommitLog=262144")
    path.write_text("".join(f"{line}\n" for line in (*own, *lines)))
    return path


@contextlib.contextmanager
def running(*arguments: object, until: str = "the store is") -> Iterator[tuple[subprocess.Popen[str], str, str]]:
    """The process once it has said `until`, what it has printed, and where it listens."""
    process = subprocess.Popen([*COMMAND, *map(str, arguments)], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        lines: list[str] = []
        while not (lines and until in lines[-1]):
            lines.append(process.stdout.readline())
            assert lines[-1], "".join(lines)
        found = re.search(r"listens on ([\d.]+:\d+)", "".join(lines))
        yield process, "".join(lines), "" if found is None else found[1]
    finally:
        process.kill()
        process.communicate()


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*COMMAND, *map(str, arguments)], capture_output=True, text=True, timeout=60, check=False)


def admin(*arguments: object, typed: str = "") -> Result:
    return CliRunner().invoke(app, ["broker-admin", *map(str, arguments)], input=typed)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_it_serves_until_a_signal(tmp_path: Path, number: signal.Signals) -> None:
    path = conf(tmp_path, "brokerRole=SYNC_MASTER", "sendMessageThreadPoolNums=8", "ownKey=1", *GOLDEN_SIZES)
    shutil.copytree(GOLDEN, tmp_path / "broker")
    with running("broker", "-c", path) as (process, output, address):
        assert f"{path}, line 5: sendMessageThreadPoolNums has no effect here" in output
        assert f"{path}, line 6: ownKey is unknown" in output
        assert f"The broker[broker-a, {address}] boot success. serializeType=JSON\n" in output
        assert "brokerRole SYNC_MASTER, brokerId 0, brokerClusterName DefaultCluster, flushDiskType ASYNC" in output
        assert re.search(r"the fast port is none, slaves connect to 127\.0\.0\.1:\d+", output)
        assert f"the store is {tmp_path}/broker, its log has offsets 0 to {GOLDEN_END}" in output
        assert (tmp_path / "broker/abort").exists()
        process.send_signal(number)
        rest, _ = process.communicate(timeout=60)
        assert process.returncode == 0
        assert f"{number.name}: the broker stops" in rest
        assert f"the broker has stopped, its log ends at offset {GOLDEN_END}" in rest
    assert not (tmp_path / "broker/abort").exists()


def test_a_hang_up_that_is_ignored_stays_ignored(tmp_path: Path) -> None:
    """nohup rmq-actors broker"""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with running("broker", "-c", conf(tmp_path)) as (process, _, address):
            process.send_signal(signal.SIGHUP)
            assert admin("status", address).exit_code == 0
            process.send_signal(signal.SIGTERM)
            rest, _ = process.communicate(timeout=60)
        assert "SIGHUP" not in rest
        assert "SIGTERM: the broker stops" in rest
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_pair_is_started_watched_and_failed_over_by_hand(tmp_path: Path) -> None:
    master_conf = conf(tmp_path, "brokerRole=SYNC_MASTER", name="master")
    with running("broker", "-c", master_conf) as (master, output, master_address):
        ha_address = re.findall(r"slaves connect to (\S+)", output)[0]
        slave_conf = conf(
            tmp_path, "brokerRole=SLAVE", "brokerId=1", f"haMasterAddress={ha_address}",
            f"masterAddr={master_address}", name="slave",
        )  # fmt: skip
        with running("broker", "-c", slave_conf, until="follows") as (slave, said, slave_address):
            assert f"the broker follows {ha_address}" in said
            status = admin("status", slave_address).stdout
            assert re.search(r"^role +SLAVE$", status, re.MULTILINE)
            assert re.search(rf"^master +{master_address}, its log at {ha_address}$", status, re.MULTILINE)
            told = json.loads(admin("status", "--json", slave_address).stdout)
            assert (told["address"], told["runtimeInfo"]["brokerRole"]) == (slave_address, "SLAVE")
            assert told["runtimeInfo"]["haFollowing"] == "yes"
            assert told["haStatus"]["haClientRuntimeInfo"]["masterAddr"] == ha_address
            refused = admin("truncate", "--yes", slave_address)
            assert (refused.exit_code, refused.stdout) == (1, "")
            assert "refuses (code 1): this slave has not halted: there is nothing to cut" in refused.stderr
            refused = admin("follow-again", slave_address)
            assert (refused.exit_code, refused.stdout) == (1, "")
            assert "refuses (code 1): this slave has not halted: it follows its master, or tries to" in refused.stderr
            master.send_signal(signal.SIGTERM)
            master.wait(60)
            done = admin("change-role", slave_address, "SYNC_MASTER", "--term", 12)
            assert (done.exit_code, done.stdout) == (0, f"{slave_address}: brokerRole is SYNC_MASTER now\n")
            assert re.search(r"^role +SYNC_MASTER$", admin("status", slave_address).stdout, re.MULTILINE)
            assert {"brokerRole=SYNC_MASTER", "brokerId=0"} <= {*slave_conf.read_text().splitlines()}
            assert "brokerRole=SLAVE" in slave_conf.with_name("slave.conf.bak").read_text()
            back = admin("change-role", slave_address, "SLAVE", "--broker-id", 7, "--ha-master-address", "h:1")
            assert back.exit_code == 0
            slave.send_signal(signal.SIGTERM)
            rest, _ = slave.communicate(timeout=60)
            assert "broker broker-a has changed: brokerRole SYNC_MASTER, brokerId 0, it follows nobody\n" in rest
            assert "broker broker-a has changed: brokerRole SLAVE, brokerId 7, it follows h:1\n" in rest
    again = CliRunner().invoke(app, ["broker", "-p", "-c", str(slave_conf)])
    assert {"brokerRole=SLAVE", "brokerId=7", "haMasterAddress=h:1"} <= {*again.stdout.splitlines()}


def test_a_file_of_the_examples_starts_a_broker(tmp_path: Path) -> None:
    """One of RocketMQ's settings, with a port and a directory of this machine for them."""
    example = (EXAMPLES / "2m-2s-sync/broker-a-s.properties").read_text()
    path = conf(tmp_path, *example.splitlines())
    with running("broker", "-c", path, "-n", "127.0.0.1:1", until="follows") as (_, output, address):
        booted = f"The broker[broker-a, {address}] boot success. serializeType=JSON and name server is 127.0.0.1:1\n"
        assert booted in output
        assert "the broker is up: brokerRole SLAVE, brokerId 1, brokerClusterName DefaultCluster" in output
        assert "the broker follows the master that name servers name" in output
        assert "WARNING rmq_actors.cli" not in output


@pytest.mark.parametrize("example", sorted(EXAMPLES.glob("*/*.properties")), ids=lambda path: path.stem)
def test_every_file_of_the_examples_is_read_whole(example: Path) -> None:
    loaded = load_broker_config(example, "127.0.0.1:9876")
    assert loaded.file.warnings == []
    assert loaded.config.broker_name == example.stem.removesuffix("-s")
    assert loaded.config.broker_id == example.stem.endswith("-s")


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (
            ["brokerRole=SLAVE", "brokerId=1", "haMasterAdress=127.0.0.1:1"],
            (
                "{path}, line 4: broker broker-a: brokerRole=SLAVE needs haMasterAddress, or name servers that know it"
                "; {path}, line 6: haMasterAdress is unknown: did you mean haMasterAddress?"
            ),
        ),
        (
            ["brokerRole=SYNC_MASTER", "inSyncReplicas=3"],
            (
                "{path}, line 5: minInSyncReplicas 1, inSyncReplicas 3 and totalReplicas 2 are not in this order: "
                "set totalReplicas (2 by default) to how many copies there are, with the master's own"
            ),
        ),
        (["mappedFileSizeCommitLog=9"], "{path}, line 4: mappedFileSizeCommitLog=9: it must be >= 182: 9"),
        (
            ["haMasterAddress=nowhere"],
            "{path}, line 4: haMasterAddress=nowhere: 'nowhere' is not an address of the form host:port",
        ),
        (
            ["brokerClusterName="],
            "{path}, line 4: brokerClusterName=: it is empty; name servers and a topic know it by that name",
        ),
        (
            ["brokerClusterName=a/b c"],
            ("{path}, line 4: brokerClusterName=a/b c: 'a/b c' has ' ' '/': no space, control character or /:;"),
        ),
        (
            ["haAllowedAddresses=;;"],
            (
                "{path}, line 4: haAllowedAddresses=;;: ';;' names no address: an allow-list is empty, which allows "
                "all, or has addresses"
            ),
        ),
        (
            ["haAllowedAddresses=10.0.0.7;nonsense"],
            (
                "{path}, line 4: haAllowedAddresses=10.0.0.7;nonsense: 'nonsense' does not appear to be an IPv4 or "
                "IPv6 network: an allow-list has addresses and networks, such as 10.0.0.7;10.1.0.0/16"
            ),
        ),
    ],
)
def test_a_refusal_names_keys_and_lines_as_the_file_has_them(tmp_path: Path, lines: list[str], message: str) -> None:
    path = conf(tmp_path, *lines)
    with pytest.raises(ConfigurationError) as caught:
        load_broker_config(path)
    assert str(caught.value) == message.format(path=path)


@pytest.mark.parametrize(
    ("lines", "ratio"),
    [
        ((), 40),
        (("brokerRole=SYNC_MASTER",), 40),
        (("brokerRole=SLAVE", "brokerId=1"), 30),
        (("brokerRole=SLAVE", "brokerId=1", "accessMessageInMemoryMaxRatio=50"), 50),
    ],
)
def test_a_slave_takes_less_of_its_memory_for_its_log(tmp_path: Path, lines: tuple[str, ...], ratio: int) -> None:
    loaded = load_broker_config(conf(tmp_path, *lines), "127.0.0.1:9876")
    assert loaded.config.store.access_message_in_memory_max_ratio == ratio


def test_an_address_that_a_name_server_elsewhere_cannot_use_is_warned_of(tmp_path: Path) -> None:
    path = conf(tmp_path)
    assert load_broker_config(path, "127.0.0.1:9876").file.warnings == []
    [warning] = load_broker_config(path, "10.0.0.9:9876").file.warnings
    assert "the name server 10.0.0.9:9876 is told that it is reached at 127.0.0.1" in warning


def test_a_bad_address_of_name_servers_is_shown_beside_the_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"broker\.conf, name servers nowhere: .*'nowhere' is not an address"):
        load_broker_config(conf(tmp_path), "nowhere")


@pytest.mark.parametrize("empty", ["", " "])
def test_name_servers_that_are_given_and_empty_are_an_error(tmp_path: Path, empty: str) -> None:
    with pytest.raises(ConfigurationError, match="the name servers that are given are empty"):
        load_broker_config(conf(tmp_path), empty)


def test_an_address_that_is_taken_is_named(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        for lines, settings in (
            ([f"haListenPort={port}"], "haListenHost or bindAddress, haListenPort"),
            ([f"listenPort={port + 2}", "haListenPort=0"], "bindAddress, listenPort"),
        ):
            done = run("broker", "-c", conf(tmp_path, *lines))
            assert done.returncode == 1
            assert done.stdout.endswith(f" cannot start: 127.0.0.1:{port}: Address already in use ({settings})\n")
            assert "Traceback" not in done.stdout + done.stderr


def test_a_port_of_metrics_that_is_taken_is_named(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ended = run("broker", "-c", conf(tmp_path, f"metricsPromExporterPort={port}"))
    assert ended.returncode == ExitCode.CHECK_FAILED
    assert ended.stdout.splitlines()[-1].endswith(
        f"ERROR rmq_actors.cli.broker the broker cannot start: 127.0.0.1:{port}: Address already in use "
        "(metricsPromExporterHost, metricsPromExporterPort)"
    )


def test_an_address_that_is_none_is_shown_with_the_others(tmp_path: Path) -> None:
    done = run("broker", "-c", conf(tmp_path, "haListenHost=192.0.2.1", "haListenPort=5"))
    assert done.returncode == 1
    assert re.search(
        r"ERROR .* cannot start: .*ssign requested address \(haListenHost or bindAddress, haListenPort\); "
        r"it would listen on 127.0.0.1:0, 192.0.2.1:5, and",
        done.stdout,
    )
    assert "Traceback" not in done.stdout + done.stderr


def test_a_store_of_other_files_is_named_and_what_to_do(tmp_path: Path) -> None:
    with running("broker", "-c", conf(tmp_path)) as (process, output, _):
        assert re.search(
            rf"INFO .* the store {tmp_path}/broker is opened\n.*INFO .* recovery reads 0 bytes of log from offset 0 on",
            output,
        )
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)
    done = run("broker", "-c", conf(tmp_path, "mappedFileSizeCommitLog=524288"))
    assert done.returncode == 2
    assert done.stdout.endswith(
        f"the broker cannot start with the store {tmp_path}/broker: its log has files of 262144 bytes, "
        "mappedFileSizeCommitLog is 524288: set it to 262144, or begin with another, empty directory\n"
    )
    assert "Traceback" not in done.stdout + done.stderr


def test_a_store_that_is_open_is_named(tmp_path: Path) -> None:
    path = conf(tmp_path)
    with running("broker", "-c", path):
        done = run("broker", "-c", path)
    assert done.returncode == 1
    assert re.search(
        rf"the broker cannot start: .* in use by process [0-9]+ .* its store is {tmp_path}/broker\n", done.stdout
    )
    assert "Traceback" not in done.stdout + done.stderr


BAD = {
    "brokerRole=KING": "line 4: brokerRole=KING: it is one of ASYNC_MASTER, SYNC_MASTER, SLAVE",
    "brokerRol=SLAVE": "line 4: brokerRol is unknown: did you mean brokerRole?\n",
    "flush_disk_type=SYNC_FLUSH": "line 4: flush_disk_type is unknown: did you mean flushDiskType?\n",
    "enableDLegerCommitLog=true": "line 4: enableDLegerCommitLog=true: there is no DLedger here",
    "brokerRole=SLAVE": "a slave's brokerId must be > 0, not 0",
    "brokerRole=SLAVE\nbrokerId=1": "brokerRole=SLAVE needs haMasterAddress, or name servers that know it",
    "bindAddress=0.0.0.0": "brokerIP1 '0.0.0.0' is not an address at which others reach it",
    "bindAddress=10.0.0.1:80": "bindAddress: '10.0.0.1:80' is no host's name or address",
    "brokerIP1=10.0.0.1:10911": "brokerIP1: '10.0.0.1:10911' is no host's name or address",
    "brokerIP2=http://a": "brokerIP2: 'http://a' is no host's name or address",
    "haListenHost=a b": "haListenHost=a b: 'a b' is no host's name or address",
    "metricsPromExporterHost=a b": "metricsPromExporterHost=a b: 'a b' is no host's name or address",
    "storePathCommitLog=/elsewhere": "line 4: storePathCommitLog=/elsewhere: the log is kept in ",
    "tls.server.keyPath=/key": "tls.server.keyPath belongs into the file",
}


@pytest.mark.parametrize("lines", BAD)
def test_a_bad_setting_is_named(lines: str, tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["broker", "-c", str(conf(tmp_path, *lines.split("\n")))])
    assert done.exit_code == 2
    assert done.stderr.startswith("error: ")
    assert BAD[lines] in done.stderr


def test_accounts_that_are_missing_are_named(tmp_path: Path) -> None:
    done = run("broker", "-c", conf(tmp_path, "aclEnable=true"))
    assert done.returncode == 2
    assert "the broker cannot start: access control needs conf/plain_acl.yml" in done.stdout
    assert "Traceback" not in done.stdout + done.stderr


def test_accounts_that_are_missing_are_named_below_rocketmq_home(tmp_path: Path) -> None:
    done = run("broker", "-c", conf(tmp_path, "aclEnable=true", f"rocketmqHome={tmp_path}/none"))
    assert done.returncode == 2
    assert (
        f"access control needs {tmp_path}/none/conf/plain_acl.yml, or files in {tmp_path}/none/conf/acl" in done.stdout
    )


def test_what_counts_where_the_file_says_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def shown(*arguments: str) -> dict[str, str]:
        done = CliRunner().invoke(app, ["broker", "-p", *arguments])
        assert done.exit_code == 0, done.output
        return dict(line.split("=", 1) for line in done.stdout.splitlines())

    path = tmp_path / "empty.conf"
    path.write_text("")
    for arguments in ((), ("-c", str(path))):
        values = shown(*arguments)
        assert (values["listenPort"], values["bindAddress"], values["brokerRole"]) == (
            "10911",
            "127.0.0.1",
            "ASYNC_MASTER",
        )
        assert values["storePathRootDir"] == str(Path.home() / "store")
        assert "namesrvAddr" not in values
    monkeypatch.setenv("NAMESRV_ADDR", "env:1")
    assert shown()["namesrvAddr"] == "env:1"
    path.write_text("namesrvAddr=file:1\nbindAddress=0.0.0.0\nbrokerIP1=10.0.0.1\nstorePathRootDir=~/x/../y\n")
    values = shown("-c", str(path))
    assert values["namesrvAddr"] == "file:1"
    # Where it listens for clients it listens for slaves, and both find it at brokerIP1.
    assert (values["haListenHost"], values["brokerIP1"], values["brokerIP2"]) == ("0.0.0.0", "10.0.0.1", "10.0.0.1")
    assert values["storePathRootDir"] == str(Path.home() / "y")
    assert shown("-c", str(path), "-n", "option:1")["namesrvAddr"] == "option:1"


def test_accounts_are_those_below_rocketmq_home(tmp_path: Path) -> None:
    home = tmp_path / "rocketmq"
    (home / "conf").mkdir(parents=True)
    account = "accounts: [{accessKey: operator, secretKey: 12345678, admin: true}]\n"
    (home / "conf/plain_acl.yml").write_text(account)
    path = conf(tmp_path, "aclEnable=true", f"rocketmqHome={home}")
    with running("broker", "-c", path) as (_, _, address):
        done = admin("status", address)
        assert done.exit_code == 1
        assert "No accessKey is configured" in done.stderr
        signed = {"ROCKETMQ_ACCESS_KEY": "operator", "ROCKETMQ_SECRET_KEY": "12345678"}
        with pytest.MonkeyPatch.context() as patch:
            for name, value in signed.items():
                patch.setenv(name, value)
            assert admin("status", address).exit_code == 0


def test_bad_use_of_broker_admin() -> None:
    for arguments in (
        ["status", "nowhere"],
        ["follow-again", "nowhere"],
        ["change-role", "127.0.0.1:1", "SYNC_MASTER", "--broker-id", "1"],
        ["change-role", "127.0.0.1:1", "KING"],
        ["change-role", "127.0.0.1:1", "SLAVE", "--term", "3"],
        ["change-role", "127.0.0.1:1", "SYNC_MASTER", "--term", "0"],
    ):
        assert admin(*arguments).exit_code == 2
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    done = admin("status", address)
    assert done.exit_code == 1
    assert done.stderr == f"error: {address} does not answer: Connection refused\n"


def test_nothing_is_cut_unless_it_is_confirmed(tmp_path: Path) -> None:
    with running("broker", "-c", conf(tmp_path)) as (_, _, address):
        done = admin("truncate", address, typed="n\n")
        assert done.exit_code == 1
        assert "Aborted" in done.stderr
        assert "refuses" not in done.stderr


def test_the_lines_of_a_status() -> None:
    slaves = [
        HAConnectionRuntimeInfo(
            addr="10.0.0.2:5", slave_ack_offset=900, diff=100, in_sync=True, transferred_byte_in_second=7
        ),
        HAConnectionRuntimeInfo(addr="10.0.0.3:5", slave_ack_offset=-1, diff=1000),
    ]
    info = {
        "haSlave_10.0.0.2:5": "ackOffset=900, behindBytes=100, lastAckAgeMs=1234, sentBytes=9, connectedMs=8",
        "haSlave_10.0.0.3:5": "nothing reported yet, sentBytes=0, connectedMs=8",
        "haConnections": "3",
        "haRefusedConnections": "1",
        "haConnectionEnds": "slave_ahead 2",
    }
    assert not any(line.startswith("replicas") for line in status_lines(info, HARuntimeInfo(master=True)))
    info["haReplicas"] = "3 of inSyncReplicas=2 copies"
    lines = status_lines(info, HARuntimeInfo(master=True, ha_connection_info=slaves))
    assert lines[-5:] == [
        "connections     3 so far, 1 refused; ended: slave_ahead 2",
        "replicas        3 of inSyncReplicas=2 copies",
        "slave                    acknowledged       behind   last ack      bytes/s  in sync",
        "10.0.0.2:5                        900          100      1.2 s            7  yes",
        "10.0.0.3:5                         -1         1000      never            0  no",
    ]
    halted = {"masterAddr": "m:1", "haHalted": "diverged: it is", "haCommonEnd": "77", "haFollowed": "1"}
    client = HAClientRuntimeInfo(master_addr="m:2", transferred_byte_in_second=5)
    lines = status_lines(halted, HARuntimeInfo(master=False, ha_client_runtime_info=client))
    assert "master          m:1, its log at m:2" in lines
    assert not any(line.startswith("following") for line in lines)  # a broker of before does not tell
    assert "halted          diverged: it is" in lines
    assert "                the master has the same log up to 77: truncate cuts there" in lines
    halted["haFollowing"] = "no (never yet): it has halted"
    halted["haCommonEnd"] = ""
    lines = status_lines(halted, HARuntimeInfo(master=False, ha_client_runtime_info=client))
    assert "                what the master has of this log is not known: follow-again asks it" in lines
    assert "following       no (never yet): it has halted" in lines


def test_a_broker_process_rarely_looks_for_cycles(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    seen: list[tuple[int, int, int]] = []
    before = gc.get_threshold()

    def run(*_: object) -> None:
        seen.append(gc.get_threshold())
        raise OSError("enough is seen")

    monkeypatch.setattr(trio, "run", run)
    try:
        assert broker_command._run(load_broker_config(conf(tmp_path))) == ExitCode.CHECK_FAILED
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()
    assert seen == [GC_THRESHOLD]
