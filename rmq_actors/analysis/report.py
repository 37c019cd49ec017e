"""The report: one HTML page that needs nothing but itself, made from the result tables and the demo's facts."""

from __future__ import annotations

import html
from collections import Counter
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from string import Template

import attrs

from rmq_actors.analysis.analyze import Analysis, Progress, analyze, tables_directory
from rmq_actors.analysis.demo_facts import DemoFacts, PlantedBugFacts, ReplicationFacts
from rmq_actors.analysis.page import quantities
from rmq_actors.analysis.page.run_charts import fault_bars, run_squares, shrunk_timeline
from rmq_actors.analysis.page.runs_table import failures_section, runs_section
from rmq_actors.analysis.page.svg import Plot
from rmq_actors.analysis.page.time_charts import is_mostly_small, lag_plot, latency_plot
from rmq_actors.analysis.report_data import LagOfRun, ReportData, Result, RunRow
from rmq_actors.analysis.session import DEFAULT_MASTER
from rmq_actors.analysis.sources import local_path

_RESULT_NAMES: Mapping[Result, str] = {
    "passed": "passed",
    "failed": "failed",
    "caught": "failed, as it should: a bug was planted",
    "incomplete": "incomplete",
}
REPORT_FILE = "report.html"
DEMO_FACTS_FILE = "demo.json"

_PAGE = resources.files("rmq_actors.analysis.page")


def report(
    traces: str,
    out: str,
    *,
    demo_json: Path | None = None,
    master: str = DEFAULT_MASTER,
    progress: Progress = lambda _what, _done, _total: None,
) -> tuple[Analysis, Path]:
    """`analyze`, then the page OUT/report.html. `demo_json`: a file of `DemoFacts`; OUT/demo.json if it is there.

    Raises what `analyze` raises, and `DemoFactsError`, before anything is computed.
    """
    target = local_path(out)
    facts = load_facts(target, demo_json)
    analysis = analyze(traces, out, master=master, progress=progress)
    return analysis, write_report(target, facts)


def load_facts(out: Path, demo_json: Path | None = None) -> DemoFacts:
    """The facts of a file; without a name those of OUT/demo.json, if any. Raises `DemoFactsError`, `OSError`."""
    path = demo_json or out / DEMO_FACTS_FILE
    if demo_json is None and not path.exists():
        return DemoFacts()
    return DemoFacts.load(path)


def write_report(out: Path, facts: DemoFacts | None = None) -> Path:
    """Make OUT/report.html from OUT/tables and return its path. Raises `OSError` where a table is missing."""
    page = render(ReportData.read(tables_directory(out)), facts or DemoFacts())
    path, fresh = out / REPORT_FILE, out / f".{REPORT_FILE}.new"
    fresh.write_text(page, encoding="utf-8")
    fresh.replace(path)
    return path


@attrs.define(eq=False, repr=False)
class _Page:
    """Sections, and the plots that the page's script must find in them."""

    sections: list[str] = attrs.field(factory=list)
    plots: list[str] = attrs.field(factory=list)

    def plot(self, plot: Plot) -> str:
        """A plot as HTML; from now on it must be there and must not be empty."""
        self.plots.append(plot.id)
        return plot.render()

    def section(self, title: str, caption: str, *content: str) -> None:
        """Add a section under a heading, with the sentence that says what to see."""
        head = f"<h2>{html.escape(title)}</h2>\n<p class='caption'>{html.escape(caption)}</p>"
        self.sections.append(f"<section>{head}\n{''.join(content)}</section>")


def render(data: ReportData, facts: DemoFacts) -> str:
    """The whole page as text."""
    page = _Page()
    page.sections.append(
        f"<section class='bare tiles' aria-label='Key numbers'>{''.join(_tiles(data, facts))}</section>"
    )
    if facts.replication is not None:
        _replication_section(page, facts.replication)
    failed = [run for run in data.judged_runs if run.result in {"failed", "caught"}]
    if failed:
        page.sections.append(failures_section(failed))
    _runs_section(page, data)
    if data.lags:
        _lag_section(page, data.lags)
    if data.latencies:
        _latency_section(page, data)
    if facts.planted_bug is not None:
        _bug_section(page, facts.planted_bug)
    page.sections.append(runs_section(data.runs))
    headline, lead = _headline(data)
    return Template(_read("page.html")).substitute(
        title=html.escape(f"{headline} – rmq-actors"),  # noqa: RUF001  # a dash is what stands there
        headline=html.escape(headline),
        lead=html.escape(lead),
        expected=" ".join(page.plots),
        css=_read("page.css"),
        js=_read("page.js"),
        sections="\n".join(page.sections),
        footer=_footer(data),
    )


def _read(name: str) -> str:
    return (_PAGE / name).read_text(encoding="utf-8")


def _headline(data: ReportData) -> tuple[str, str]:
    if not data.runs:
        return "No runs", "The traces hold no run."
    headline, planted = _outcome(data.judged_runs), data.planted_runs
    bug = f"the planted bug {', '.join(sorted({run.planted_bug or '' for run in planted}))}"
    caught = len(data.by_result("caught"))
    if len(planted) == len(data.runs):
        return f"{headline}, with {bug}", _lead(data)
    if planted:
        of = "" if len(planted) == 1 else f" in {quantities.count(caught)} of {quantities.plural(len(planted), 'run')}"
        headline += f"; {bug} was {'caught' if caught else 'not caught'}{of if caught else ''}"
    return headline, _lead(data)


def _outcome(runs: Sequence[RunRow]) -> str:
    """How many of them failed, and how."""
    total = len(runs)
    failed = [run for run in runs if run.result in {"failed", "caught"}]
    incomplete = sum(run.result == "incomplete" for run in runs)
    if failed:
        text = f"{quantities.count(len(failed))} of {quantities.plural(total, 'run')} failed ({_kinds(failed)})"
        return text + (f", {quantities.count(incomplete)} did not come to an end" if incomplete else "")
    if incomplete:
        return f"{quantities.count(incomplete)} of {quantities.plural(total, 'run')} did not come to an end"
    return "The run passed" if total == 1 else f"All {quantities.count(total)} runs passed"


def _kinds(failed: Sequence[RunRow]) -> str:
    """`1 crash, 2 invariant`, and where all ended alike, how."""
    outcomes = Counter(run.outcome for run in failed)
    single = len(outcomes) == 1
    return ", ".join(outcome if single else f"{times} {outcome}" for outcome, times in sorted(outcomes.items()))


def _lead(data: ReportData) -> str:
    sim, real = data.sim_runs, data.real_runs
    planted = [run for run in data.planted_runs if run not in sim]
    faults = sum(sum(run.faults_fired.values()) for run in sim)
    sentences = []
    if sim:
        lasted = quantities.seconds(sum(run.virtual_s or 0.0 for run in sim))
        sentences.append(
            f"{quantities.plural(len(sim), 'run')} in a simulated world, {lasted} of virtual time, "
            f"{'with ' + quantities.plural(faults, 'fault') if faults else 'without a fault'}."
        )
    if real:
        sentences.append(f"{quantities.plural(len(real), 'run')} of real brokers on real sockets.")
    if planted:
        sentences.append(f"{quantities.plural(len(planted), 'run')} with a bug planted on purpose.")
    events = sum(run.events for run in data.runs)
    sentences.append(f"This page was made from {quantities.plural(events, 'traced event')}.")
    return " ".join(sentences)


def _tiles(data: ReportData, facts: DemoFacts) -> list[str]:
    judged, planted = data.judged_runs, data.planted_runs
    real = sum(run.is_real for run in data.runs)
    sources = f"{len(data.runs) - real - len(planted):,} simulated, {real:,} real"
    sources += f", {len(planted):,} with a planted bug" if planted else ""
    failed = [run for run in judged if run.result in {"failed", "caught"}]
    passed = sum(run.result == "passed" for run in judged)
    incomplete = sum(run.result == "incomplete" for run in judged)
    caught = [run for run in planted if run.result == "caught" and run not in judged]
    endings = [_kinds(failed)] if failed else ["no invariant broke"]
    endings += [f"{incomplete:,} incomplete"] if incomplete else []
    endings += [f"{len(caught):,} with a planted bug, as it should"] if caught else []
    # What a broken broker acknowledged is no merit, unless all were broken.
    acked, size_bytes = sum(run.acked_puts for run in judged), sum(run.acked_bytes for run in judged)
    unconfirmed = sum(run.puts_begun for run in judged) - acked
    tiles = [
        _tile("runs", quantities.count(len(data.runs)), sources),
        _tile(
            "passed",
            quantities.count(passed),
            "none" if not passed else "every invariant held" if data.sim_runs else "ended in order",
            "good" if passed else "",
        ),
        _tile("failed", quantities.count(len(failed)), "; ".join(endings), "bad" if failed else ""),
        _tile(
            "puts acknowledged",
            quantities.count(acked),
            f"{quantities.size(size_bytes)}; {quantities.count(unconfirmed)} not confirmed",
        ),
    ]
    if facts.replication is not None:
        same = facts.replication.identical
        more = f"{quantities.size(facts.replication.bytes)} on both sides" if same else "the SHA-256 differ"
        tiles.append(_tile("logs identical", "yes" if same else "no", more, "good" if same else "bad"))
    return tiles


def _tile(name: str, value: str, more: str, class_: str = "") -> str:
    return (
        f"<div class='tile'><div class='name'>{html.escape(name)}</div>"
        f"<div class='value {class_}'>{html.escape(value)}</div><div class='more'>{html.escape(more)}</div></div>"
    )


def _replication_section(page: _Page, facts: ReplicationFacts) -> None:
    same = facts.identical
    verdict = (
        "<span class='badge passed'>the same bytes</span>" if same else "<span class='badge failed'>not the same</span>"
    )
    rows = [
        ("messages", quantities.count(facts.messages)),
        ("bytes", f"{quantities.count(facts.bytes)} ({quantities.size(facts.bytes)})"),
        ("files begun", quantities.count(facts.files_rolled)),
        ("SHA-256, master", f"<code>{html.escape(facts.sha256_master)}</code>"),
        ("SHA-256, slave", f"<code>{html.escape(facts.sha256_slave)}</code>"),
        ("verdict", verdict),
    ]
    listed = "".join(f"<dt>{name}</dt><dd>{value}</dd>" for name, value in rows)
    page.section(
        "Replication over real sockets",
        "A slave followed a master over loopback; both logs, from the first byte to the last, "
        + ("are the same." if same else "should be the same and are not."),
        f"<dl class='facts'>{listed}</dl>",
    )


def _runs_section(page: _Page, data: ReportData) -> None:
    content = [_legend([(f"bg-{result}", name) for result, name in _RESULT_NAMES.items() if data.by_result(result)])]
    if data.runs:
        content.append(f"<figure>{page.plot(run_squares(data.runs))}</figure>")
    bars = fault_bars(data.sim_runs)
    if bars:
        figures = "".join(f"<figure><h3>{html.escape(bar.title)}</h3>{page.plot(bar)}</figure>" for bar in bars)
        content.append(
            f"<div class='pair'>{figures}</div>"
            "<p class='caption'>In how many simulated runs: a fault that is made but noticed nowhere tests nothing.</p>"
        )
        caption = "Green squares are runs in which every invariant held, whatever was done to the brokers."
    else:
        made = any(run.faults_fired for run in data.runs)
        caption = "Green squares are runs in which every invariant held" + ("." if made else "; no fault was made.")
    page.section("Runs and faults", caption, *content)


def _legend(entries: Sequence[tuple[str, str]]) -> str:
    items = "".join(f"<li>{_swatch(class_)}{html.escape(text)}</li>" for class_, text in entries)
    return f"<ul class='legend'>{items}</ul>"


def _swatch(class_: str) -> str:
    return f"<i class='{class_}'></i>" if class_ else ""


def _lag_section(page: _Page, lags: Sequence[LagOfRun]) -> None:
    figures = []
    for index, lag in enumerate(lags):
        run = lag.run
        why = f": {lag.why}" if lag.why else ""
        name = f"{run.scenario}, real brokers" if run.is_real else f"{run.scenario}, seed {run.seed}{why}"
        legend = [
            (f"stroke s{min(position, 3)}", f"{series.slave}, at most {quantities.size(max(series.lag_bytes))}")
            for position, series in enumerate(lag.series)
        ]
        if lag.faults:
            legend.append(("bg-fault", "a fault is in effect"))
        if is_mostly_small(lag):
            legend.append(("", "logarithmic axis"))
        figures.append(
            f"<figure class='lag'><h3>{html.escape(name)} {_badge(run)}</h3>"
            f"{_legend(legend)}{page.plot(lag_plot(index, lag))}</figure>"
        )
    page.section(
        "Replication lag over time",
        "Bytes by which a slave's log ends before its master's: the lag grows while a fault keeps them apart, "
        "and in a run that passes it goes back to zero afterwards.",
        *figures,
    )


def _badge(run: RunRow) -> str:
    return f"<span class='badge {run.result}'>{html.escape(run.outcome)}</span>"


def _latency_section(page: _Page, data: ReportData) -> None:
    statuses = {status for latency in data.latencies for status in latency.puts}
    timeouts = sorted(status for status in statuses if status.endswith("TIMEOUT"))
    others = sorted(status for status in statuses if status != "PUT_OK" and status not in timeouts)
    legend = [("bg-ok", "PUT_OK")] if "PUT_OK" in statuses else []
    legend += [("bg-timeout", ", ".join(timeouts))] if timeouts else []
    legend += [("bg-other", ", ".join(others))] if others else []
    page.section(
        "Latency of puts",
        "Time from a message's append to its answer, on a logarithmic axis; simulated brokers answer in virtual time, "
        "so their shape tells of faults and time-outs, not of this machine.",
        _legend(legend),
        f"<figure>{page.plot(latency_plot(data.latencies))}</figure>",
    )


def _bug_section(page: _Page, bug: PlantedBugFacts) -> None:
    before, after = quantities.count(bug.original_faults), quantities.count(len(bug.shrunk_schedule))
    facts = [
        ("what is wrong", html.escape(bug.description)),
        ("found after", f"{quantities.plural(bug.runs_to_find, 'run')}, {quantities.seconds(bug.seconds)}"),
        ("what was seen", html.escape(bug.failure)),
        ("faults in the schedule", f"{before} when found, {after} after shrinking"),
    ]
    listed = "".join(f"<dt>{name}</dt><dd>{value}</dd>" for name, value in facts)
    content = [f"<dl class='facts'>{listed}</dl>", "<h3>What is left of the schedule</h3>"]
    timeline = shrunk_timeline(bug)
    if timeline is None:
        content.append("<p class='caption'>Nothing: the bug shows without any fault.</p>")
    else:
        content.append(f"<figure>{page.plot(timeline)}</figure>")
    content.append(
        "<h3>See it happen again</h3><div class='command'>"
        f"<pre>{html.escape(bug.replay_command)}</pre><button type='button'>copy</button></div>"
    )
    page.section(
        f"A planted bug, found: {bug.name}",
        "A known bug was put in to see whether the search finds it; these are the fewest faults that still show it.",
        *content,
    )


def _footer(data: ReportData) -> str:
    revisions = sorted({run.git_revision for run in data.runs if run.git_revision})
    text = (
        "The tables behind this page are beside it, in <code>tables/</code>, as Parquet; "
        "each row names the events it rests on."
    )
    if revisions:
        text += f" Revision {html.escape(', '.join(revisions))}."
    return f"<p>{text}</p>"
