"""docs/remoting-bodies.md lists what the registry knows."""

from __future__ import annotations

from pathlib import Path

from rmq_actors.wire.bodies import REQUEST_BODIES, RESPONSE_BODIES, BodyForm
from rmq_actors.wire.bodies.remoting_serializable import RemotingSerializable
from rmq_actors.wire.request_code import RequestCode

PAGE = Path(__file__).parents[2] / "docs" / "remoting-bodies.md"
HEAD = "| code | request | its body | body of the answer |\n|--|--|--|--|\n"


def cell(body: type[RemotingSerializable] | BodyForm | None) -> str:
    if body is None:
        return ""
    return body.value if isinstance(body, BodyForm) else f"`{body.__name__}`"


def row(code: int) -> str:
    cells = (RequestCode(code).name, cell(REQUEST_BODIES.get(code)), cell(RESPONSE_BODIES.get(code)))
    return f"| {code} | {' | '.join(cells)} |\n"


def test_the_table_is_that_of_the_registry() -> None:
    rows = "".join(map(row, sorted({*REQUEST_BODIES, *RESPONSE_BODIES})))
    table = PAGE.read_text(encoding="utf-8").partition(HEAD)[2].partition("\n\n")[0] + "\n"
    assert table == rows, f"put this below the head of the table:\n{rows}"
