"""The table of runs, to be sorted and searched in the page."""

from __future__ import annotations

import html
from collections.abc import Sequence

from rmq_actors.analysis.page import quantities
from rmq_actors.analysis.page.run_charts import faults_text
from rmq_actors.analysis.report_data import RunRow

#: A page is to be read: of more runs than this the failed ones and the first ones are listed.
ROWS_MAX = 1000

_COLUMNS = (
    ("run", "text"),
    ("seed", ""),
    ("outcome", "text"),
    ("time", ""),
    ("events", ""),
    ("acked", ""),
    ("puts", ""),
    ("p99", ""),
    ("peak lag", ""),
    ("faults", "text"),
)


#: So many seeds of a group of failures.
_SEEDS_SHOWN = 12


def failures_section(failed: Sequence[RunRow]) -> str:
    """The runs that failed, those that failed alike in one row."""
    groups: dict[tuple[str, str, str], list[RunRow]] = {}
    for run in failed:
        how = ", ".join([run.outcome, *run.invariants_broken])
        groups.setdefault((run.scenario, how, run.planted_bug or ""), []).append(run)
    rows = [
        f"<tr><td class='text'>{html.escape(scenario)}</td><td class='text'>{html.escape(how)}</td>"
        f"<td class='text'>{html.escape(bug)}</td><td>{quantities.count(len(runs))}</td>"
        f"<td class='text wide'>{html.escape(_seeds(runs))}</td></tr>"
        for (scenario, how, bug), runs in sorted(groups.items(), key=lambda item: -len(item[1]))
    ]
    names = ("scenario", "how it failed", "planted bug")
    head = "".join(f"<th scope='col' class='text'>{name}</th>" for name in names)
    head += "<th scope='col'>runs</th><th scope='col' class='text'>seeds</th>"
    return (
        "<section><h2>Failures</h2><p class='caption'>Runs that failed alike are one row. Where they are runs of "
        "<code>rmq-actors chaos run</code>, the same command with <code>--seeds N</code> makes one of them again.</p>"
        f"<div class='rows'><table class='failures'><thead><tr>{head}</tr></thead>"
        f"<tbody>\n{''.join(rows)}\n</tbody></table></div></section>"
    )


def _seeds(runs: Sequence[RunRow]) -> str:
    shown = ", ".join(str(run.seed) for run in runs[:_SEEDS_SHOWN])
    return shown + (f" and {quantities.count(len(runs) - _SEEDS_SHOWN)} more" if len(runs) > _SEEDS_SHOWN else "")


def runs_section(runs: Sequence[RunRow]) -> str:
    """The section with the table."""
    listed = sorted(runs, key=lambda run: run.result == "passed")[:ROWS_MAX]
    cut = f" The other {len(runs) - len(listed):,} are in tables/run_summary." if len(listed) < len(runs) else ""
    head = "".join(
        f"<th scope='col' class='{kind}'><button type='button'>{name}</button></th>" for name, kind in _COLUMNS
    )
    body = "\n".join(_row(run) for run in listed)
    return (
        "<section><h2>All runs</h2><p class='caption'>One row a run, those that did not pass first; "
        f"a heading sorts, the field searches.{cut}</p>"
        "<div class='tools'><input type='search' id='runs-search' placeholder='seed, outcome, fault' "
        "aria-label='search the runs'>"
        "<label><input type='checkbox' id='runs-failed'> only those that did not pass</label>"
        "<span id='runs-shown'></span></div>"
        f"<div class='rows'><table class='runs'><thead><tr>{head}</tr></thead>"
        f"<tbody>\n{body}\n</tbody></table></div></section>"
    )


def _row(run: RunRow) -> str:
    source = "real" if run.is_real else "simulated"
    badge = f"<span class='badge {run.result}'>{html.escape(run.outcome)}</span>"
    broken = html.escape(f" {', '.join(run.invariants_broken)}")
    cells = [
        f"<td class='text'>{html.escape(run.scenario)}, {source}</td>",
        _number(run.seed, str(run.seed)),
        f"<td class='text'>{badge}{broken}</td>",
        _number(run.duration_s, "" if run.duration_s is None else quantities.seconds(run.duration_s)),
        _number(run.events, quantities.count(run.events)),
        _number(run.acked_puts, quantities.count(run.acked_puts)),
        _number(run.puts_begun, quantities.count(run.puts_begun)),
        _number(run.p99_ms, "" if run.p99_ms is None else quantities.milliseconds(run.p99_ms)),
        _number(run.lag_bytes_max, "" if run.lag_bytes_max is None else quantities.size(run.lag_bytes_max)),
        f"<td class='text wide'>{html.escape(faults_text(run.faults_fired))}</td>",
    ]
    return f"<tr data-result='{run.result}'>{''.join(cells)}</tr>"


def _number(value: float | None, text: str) -> str:
    return f"<td data-value='{-1 if value is None else value}'>{html.escape(text)}</td>"
