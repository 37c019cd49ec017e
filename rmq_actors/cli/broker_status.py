"""What `broker-admin status` asks a broker, and how it shows the answers: as lines, and as JSON."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import attrs

from rmq_actors.cli.broker_request import RequestFailed, broker_request
from rmq_actors.wire.request_code import RequestCode, RequestCode5
from rmq_actors.wire.response_code import ResponseCode

if TYPE_CHECKING:
    from rmq_actors.remoting.client import RemotingClient
    from rmq_actors.wire.bodies.ha_runtime_info import HARuntimeInfo


@attrs.frozen
class ToldStatus:
    """What a broker has answered. `ha`: None from a broker of RocketMQ 4.9, which does not know the request."""

    address: str
    info: Mapping[str, str]
    ha: HARuntimeInfo | None

    @property
    def lines(self) -> list[str]:
        """For people."""
        return status_lines(self.info, self.ha)

    @property
    def as_json(self) -> dict[str, Any]:
        """For scripts: the bodies of both answers, under the names that RocketMQ's tools know."""
        import msgspec

        ha = None if self.ha is None else msgspec.to_builtins(self.ha)
        return {"address": self.address, "runtimeInfo": dict(self.info), "haStatus": ha}


async def ask_status(client: RemotingClient, address: str) -> ToldStatus:
    """Ask a broker how it is doing. Raises `RequestFailed`."""
    from rmq_actors.wire.bodies.decoding import decode_body
    from rmq_actors.wire.bodies.ha_runtime_info import HARuntimeInfo
    from rmq_actors.wire.bodies.routes import KVTable

    info = await broker_request(client, address, RequestCode.GET_BROKER_RUNTIME_INFO)
    table = decode_body(KVTable, info.body).table
    try:
        ha = await broker_request(client, address, RequestCode5.GET_BROKER_HA_STATUS)
    except RequestFailed as error:
        if error.code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
            raise
        return ToldStatus(address, table, None)
    return ToldStatus(address, table, decode_body(HARuntimeInfo, ha.body))


def status_lines(info: Mapping[str, str], ha: HARuntimeInfo | None) -> list[str]:
    """The lines of `status`. Without `ha` the broker is one of RocketMQ 4.9."""
    begin, end = info.get("commitLogMinOffset", "?"), info.get("commitLogMaxOffset", "?")
    rows = [
        ("broker", f"{info.get('brokerName', '?')}, brokerId {info.get('brokerId', '?')}"),
        ("role", info.get("brokerRole", "?")),
        ("log", f"offsets {begin} to {end}, {info.get('remainHowManyDataToFlush', '?')} not synced yet"),
        ("not dispatched", f"{info.get('dispatchBehindBytes', '?')} bytes"),
        ("disk used", f"{float(info.get('commitLogDiskRatio', 'nan')):.0%}"),
    ]
    if "putsRefused" in info:
        rows.append(("puts refused", info["putsRefused"]))
    return [*_columns(rows), *replication_lines(info, ha)]


def replication_lines(info: Mapping[str, str], ha: HARuntimeInfo | None) -> list[str]:
    """A master's slaves, or what a slave follows, and since when it does not."""
    if ha is None:
        return _columns([("replication", "not told: the broker does not know GET_BROKER_HA_STATUS")])
    rows = []
    client = ha.ha_client_runtime_info
    if not ha.master:
        rows += [
            ("master", f"{info.get('masterAddr') or 'not known'}, its log at {client.master_addr or 'not known'}"),
            ("received", f"{client.transferred_byte_in_second} bytes a second"),
            *([("following", info["haFollowing"])] if "haFollowing" in info else []),
            ("followed", f"{info.get('haFollowed', '?')} times; ended: {info.get('haFollowEnds') or 'never'}"),
            ("halted", info.get("haHalted") or "no"),
        ]
        if info.get("haCommonEnd"):
            rows.append(("", f"the master has the same log up to {info['haCommonEnd']}: truncate cuts there"))
        elif info.get("haHalted"):
            rows.append(("", "what the master has of this log is not known: follow-again asks it"))
    refused, ends = info.get("haRefusedConnections", "?"), info.get("haConnectionEnds") or "none"
    rows += [
        ("HA port", info.get("haListenAddress", "?")),
        ("connections", f"{info.get('haConnections', '?')} so far, {refused} refused; ended: {ends}"),
    ]
    if ha.master and "haReplicas" in info:
        rows.append(("replicas", info["haReplicas"]))
    lines = _columns(rows)
    if ha.master:
        lines += _slave_lines(info, ha)
    return lines


def _columns(rows: Iterable[tuple[str, str]]) -> list[str]:
    return [f"{name:<15} {value}" for name, value in rows]


def _slave_lines(info: Mapping[str, str], ha: HARuntimeInfo) -> list[str]:
    if not ha.ha_connection_info:
        return ["no slave is connected"]
    lines = [f"{'slave':<22} {'acknowledged':>14} {'behind':>12} {'last ack':>10} {'bytes/s':>12}  in sync"]
    for slave in ha.ha_connection_info:
        told = dict(part.split("=") for part in info.get(f"haSlave_{slave.addr}", "").split(", ") if "=" in part)
        age = f"{int(told['lastAckAgeMs']) / 1000:.1f} s" if "lastAckAgeMs" in told else "never"
        lines.append(
            f"{slave.addr or '?':<22} {slave.slave_ack_offset:>14} {slave.diff:>12} {age:>10} "
            f"{slave.transferred_byte_in_second:>12}  {'yes' if slave.in_sync else 'no'}"
        )
    return lines
