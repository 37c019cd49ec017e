"""The page, opened in a browser: no errors, no empty plot, nothing from the network. And its pieces, without one."""

from __future__ import annotations

import html
import re
import shutil
import subprocess
from pathlib import Path

import attrs
import pytest

from rmq_actors.analysis.demo_facts import DemoFacts
from rmq_actors.analysis.page import quantities
from rmq_actors.analysis.page.svg import LinearScale, LogScale, SymlogScale, number
from rmq_actors.analysis.page.time_charts import _joined
from rmq_actors.analysis.report import load_facts, render, write_report
from rmq_actors.analysis.report_data import ReportData, RunRow
from rmq_actors.tracing.event import of_kind
from rmq_actors.tracing.events.run import FaultBegin
from tests.spark.conftest import Campaign
from tests.spark.test_demo_facts import BUG, REPLICATION

PAGE_BYTES_MAX = 1_500_000
FACTS = DemoFacts.of({"replication": REPLICATION, "planted_bug": BUG})


@attrs.frozen
class Opened:
    """What a browser made of a page: the document after its scripts, and what the console said."""

    document: str
    console: list[str]

    def data(self, name: str) -> str:
        """An attribute data-NAME of the html element."""
        (root,) = re.findall(r"<html[^>]*>", self.document)
        (value,) = re.findall(rf'data-{name}="([^"]*)"', root)
        return html.unescape(value)


@pytest.fixture
def open_page(tmp_path: Path) -> object:
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("chromium is not on PATH")

    def open_in_browser(path: Path) -> Opened:
        command = [
            chromium, "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
            "--disable-background-networking", "--disable-component-update", "--disable-sync",
            f"--user-data-dir={tmp_path / 'profile'}", "--enable-logging=stderr", "--window-size=1180,2000",
            "--dump-dom", path.as_uri(),
        ]  # fmt: skip
        ended = subprocess.run(command, capture_output=True, text=True, check=True, timeout=100)
        return Opened(ended.stdout, [line for line in ended.stderr.splitlines() if "CONSOLE" in line])

    return open_in_browser


def opened(open_page: object, path: Path) -> Opened:
    assert callable(open_page)
    result = open_page(path)
    assert isinstance(result, Opened)
    return result


def test_the_page_of_a_campaign(campaign: Campaign, open_page: object) -> None:
    path = write_report(campaign.out, FACTS)
    assert path.stat().st_size <= PAGE_BYTES_MAX
    page = opened(open_page, path)
    assert page.console == []
    assert page.data("plots") == "ok"
    marks = dict(entry.split(":") for entry in page.data("marks").split())
    lags = {f"plot-lag-{number}" for number in range(4)}
    assert set(marks) == {"plot-runs", "plot-faults-made", "plot-faults-noticed", "plot-latency", "plot-shrunk", *lags}
    assert int(marks["plot-runs"]) == len(campaign.events)
    assert int(marks["plot-shrunk"]) == len(BUG["shrunk_schedule"])
    made = {event.fault_kind for events in campaign.events.values() for event in of_kind(events, FaultBegin)}
    assert int(marks["plot-faults-made"]) == len(made)
    assert "1 of 13 runs failed (invariant)" in page.document
    assert f"{len(campaign.events)} of {len(campaign.events)} rows" in page.document


def test_an_empty_plot_is_noticed(campaign: Campaign, open_page: object, tmp_path: Path) -> None:
    text = render(ReportData.read(campaign.out / "tables"), FACTS)
    at = text.index('id="plot-latency"')
    broken = text[:at] + text[at:].replace(
        'class="mark', 'class="', text[at : text.index("</svg>", at)].count('class="mark')
    )
    path = tmp_path / "broken.html"
    path.write_text(broken)
    page = opened(open_page, path)
    assert page.data("plots") == "empty: plot-latency"
    assert any("These plots show nothing: plot-latency" in line for line in page.console)


def test_a_missing_plot_is_noticed(campaign: Campaign, open_page: object, tmp_path: Path) -> None:
    text = render(ReportData.read(campaign.out / "tables"), FACTS)
    path = tmp_path / "broken.html"
    path.write_text(re.sub(r'<svg id="plot-runs".*?</svg>', "", text, flags=re.DOTALL))
    assert opened(open_page, path).data("plots") == "empty: plot-runs"


RUN = RunRow(
    run_id=1,
    campaign="nightly",
    scenario="replication",
    seed=7,
    source="sim",
    outcome="passed",
    git_revision="",
    faults_scheduled=["Kill"],
    faults_fired={"Kill": 2},
    faults_observed={"kill": 1},
    invariants_broken=[],
    events=10,
    virtual_s=1.0,
    wall_s=1.0,
    puts_begun=2,
    puts_unanswered=0,
    acked_puts=2,
    acked_bytes=99,
)


@pytest.mark.parametrize("runs", [0, 1, 1000, 5000])
def test_pages_of_any_number_of_runs(runs: int, open_page: object, tmp_path: Path) -> None:
    outcomes = ["passed"] * 9 + ["invariant"]
    rows = [attrs.evolve(RUN, run_id=number, seed=number, outcome=outcomes[number % 10]) for number in range(runs)]
    text = render(ReportData(rows, [], []), DemoFacts())
    assert len(text) <= PAGE_BYTES_MAX
    path = tmp_path / "page.html"
    path.write_text(text)
    page = opened(open_page, path)
    assert (page.console, page.data("plots")) == ([], "ok")
    if runs == 5000:
        assert "plot-runs:1000" in page.data("marks")
        assert "The other 4,000 are in tables/run_summary." in text


# Without a browser.


def test_the_page_needs_no_network(campaign: Campaign) -> None:
    text = render(ReportData.read(campaign.out / "tables"), FACTS)
    assert re.findall(r"""(?:src|href)\s*=\s*["']([^"']*)""", text) == ["data:,"]
    assert "url(" not in text
    assert "@import" not in text
    assert "fetch(" not in text
    assert not re.search(r"https?://", text)


def test_every_plot_has_a_title_and_a_description(campaign: Campaign) -> None:
    text = render(ReportData.read(campaign.out / "tables"), FACTS)
    plots = re.findall(r'<svg id="([^"]+)" class="plot" role="img" aria-labelledby="([^"]+)"', text)
    assert len(plots) == 9
    for plot, labels in plots:
        assert labels == f"{plot}-title {plot}-desc"
        for label in labels.split():
            (content,) = re.findall(rf'id="{label}">([^<]+)<', text)
            assert content.strip()


def test_text_from_traces_cannot_become_markup() -> None:
    evil = "<script>alert(1)</script>"
    row = attrs.evolve(
        RUN, scenario=evil, outcome=evil, faults_fired={evil: 1}, invariants_broken=[evil], git_revision=evil
    )
    bug = BUG | {"name": evil, "description": evil, "failure": evil, "replay_command": evil}
    text = render(ReportData([row], [], []), DemoFacts.of({"planted_bug": bug}))
    assert evil not in text
    assert text.count("<script>") == 1


def test_differing_logs_are_said_loudly() -> None:
    differing = REPLICATION | {"sha256_slave": "cd" * 32, "identical": False}
    text = render(ReportData([RUN], [], []), DemoFacts.of({"replication": differing}))
    assert "should be the same and are not" in text
    assert "value bad'>no<" in text


@pytest.mark.parametrize(
    ("outcomes", "headline"),
    [
        (["passed"], "The run passed"),
        (["passed"] * 3, "All 3 runs passed"),
        (["passed", "invariant", "crash"], "2 of 3 runs failed (1 crash, 1 invariant)"),
        (["passed", "liveness", "liveness"], "2 of 3 runs failed (liveness)"),
        (["passed", "incomplete"], "1 of 2 runs did not come to an end"),
        ([], "No runs"),
    ],
)
def test_the_headline(outcomes: list[str], headline: str) -> None:
    rows = [attrs.evolve(RUN, run_id=number, outcome=outcome) for number, outcome in enumerate(outcomes)]
    assert f"<h1>{headline}</h1>" in render(ReportData(rows, [], []), DemoFacts())


def planted(outcomes: list[str]) -> list[RunRow]:
    return [
        attrs.evolve(
            RUN, run_id=100 + seed, seed=seed, outcome=outcome, planted_bug="any_ack", invariants_broken=["acked"]
        )
        for seed, outcome in enumerate(outcomes)
    ]


def test_a_planted_bug_that_was_caught_is_no_failure() -> None:
    rows = [RUN, attrs.evolve(RUN, run_id=2, campaign="hunt", outcome="invariant", planted_bug="stale_frame")]
    data = ReportData(rows, [], [])
    assert [run.result for run in data.runs] == ["passed", "caught"]
    text = render(data, DemoFacts())
    assert "<h1>The run passed; the planted bug stale_frame was caught</h1>" in text
    assert "1 simulated, 0 real, 1 with a planted bug" in text
    assert "hunt / replication, simulated, planted bug stale_frame: 1 run" in text
    assert "<div class='value '>0</div><div class='more'>no invariant broke; 1 with a planted bug, as it should" in text


def test_failures_of_runs_that_all_have_a_planted_bug_are_counted() -> None:
    """`chaos run --planted-bug`: 11 of 60 failed, and the page said "All 49 runs passed"."""
    text = render(ReportData(planted(["passed"] * 49 + ["invariant"] * 8 + ["crash"] * 3), [], []), DemoFacts())
    assert "<h1>11 of 60 runs failed (3 crash, 8 invariant), with the planted bug any_ack</h1>" in text
    assert "<div class='value good'>49</div>" in text
    assert "<div class='value bad'>11</div><div class='more'>3 crash, 8 invariant</div>" in text
    assert "<div class='name'>puts acknowledged</div><div class='value '>120</div>" in text
    assert "no fault was made" not in text
    assert 'id="plot-faults-made"' in text
    assert "60 runs in a simulated world" in text


@pytest.mark.parametrize(
    ("sound", "with_bug", "headline"),
    [
        (["passed"] * 2, ["passed"] * 3, "All 2 runs passed; the planted bug any_ack was not caught"),
        (
            ["passed"] * 2,
            ["invariant", "passed"],
            "All 2 runs passed; the planted bug any_ack was caught in 1 of 2 runs",
        ),
        (["passed", "crash"], ["crash"], "1 of 2 runs failed (crash); the planted bug any_ack was caught"),
        (["liveness", "incomplete"], [], "1 of 2 runs failed (liveness), 1 did not come to an end"),
        ([], ["passed"] * 2, "All 2 runs passed, with the planted bug any_ack"),
    ],
)
def test_the_headline_beside_a_planted_bug(sound: list[str], with_bug: list[str], headline: str) -> None:
    rows = [attrs.evolve(RUN, run_id=number, outcome=outcome) for number, outcome in enumerate(sound)]
    assert f"<h1>{headline}</h1>" in render(ReportData([*rows, *planted(with_bug)], [], []), DemoFacts())


def test_failures_that_are_alike_are_one_row_with_their_seeds() -> None:
    alike = [
        attrs.evolve(RUN, run_id=seed, seed=seed, outcome="invariant", invariants_broken=["prefix"])
        for seed in range(15)
    ]
    other = attrs.evolve(RUN, run_id=99, seed=99, outcome="crash")
    text = render(ReportData([RUN, *alike, other], [], []), DemoFacts())
    rows = re.findall(r"<tr>(.*?)</tr>", text[text.index("<h2>Failures</h2>") : text.index("<h2>Runs and faults</h2>")])
    cells = [re.findall(r"<td[^>]*>([^<]*)</td>", row) for row in rows[1:]]
    assert cells == [
        ["replication", "invariant, prefix", "", "15", "0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11 and 3 more"],
        ["replication", "crash", "", "1", "99"],
    ]
    assert "<h2>Failures</h2>" not in render(ReportData([RUN], [], []), DemoFacts())


def test_shades_of_faults_at_the_same_time_are_one() -> None:
    assert _joined([(5, 7), (1, 3), (2, 4), (4, 4.5), (6, 6.5)]) == [(1, 4.5), (5, 7)]


def test_a_fault_that_never_fired_is_shown_as_such() -> None:
    row = attrs.evolve(RUN, faults_scheduled=["Kill", "Stall"])
    assert ">never<" in render(ReportData([row], [], []), DemoFacts())


def test_facts_beside_the_tables_are_found(tmp_path: Path) -> None:
    assert load_facts(tmp_path) == DemoFacts()
    (tmp_path / "demo.json").write_text("{}")
    assert load_facts(tmp_path) == DemoFacts()
    with pytest.raises(FileNotFoundError):
        load_facts(tmp_path, tmp_path / "other.json")


@pytest.mark.parametrize(
    ("scale", "ticks"),
    [
        (LinearScale(0, 10, 0, 100).ticks(5), [0, 2, 4, 6, 8, 10]),
        (LinearScale(0, 0.7, 0, 100).ticks(3), [0, 0.5]),
        (LinearScale(-3, 3, 0, 100).ticks(3), [-2, 0, 2]),
        (LinearScale(0, 12_000, 0, 100).ticks(4, base=1024), [0, 4096, 8192]),
        (LinearScale(5, 5, 0, 100).ticks(4), [5]),
        (LogScale(0.5, 200, 0, 100).ticks(), [1, 10, 100]),
        (SymlogScale(-200, 9000, 0, 100, 128).ticks(8), [0, 128, -128, 1024, 8192]),
    ],
)
def test_ticks_are_round(scale: list[float], ticks: list[float]) -> None:
    assert scale == pytest.approx(ticks)


def test_scales_reach_from_end_to_end() -> None:
    for scale in (LinearScale(2, 8, 10, 50), LogScale(2, 8, 10, 50), SymlogScale(-2, 8, 10, 50, 1)):
        assert (scale(scale.low), scale(scale.high)) == pytest.approx((10, 50))
    assert LinearScale(3, 3, 10, 50)(3) == 10
    assert SymlogScale(-8, 8, 0, 100, 1)(0) == pytest.approx(50)
    with pytest.raises(ValueError, match="no coordinate: nan"):
        number(float("nan"))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (quantities.size(0), "0 B"),
        (quantities.size(1023), "1023 B"),
        (quantities.size(1024), "1 KiB"),
        (quantities.size(1_482_752), "1.41 MiB"),
        (quantities.size(-2048), "-2 KiB"),
        (quantities.milliseconds(0), "0 ms"),
        (quantities.milliseconds(0.0132), "13.2 µs"),
        (quantities.milliseconds(12.34), "12.3 ms"),
        (quantities.milliseconds(3000), "3 s"),
        (quantities.seconds(59.5), "59.5 s"),
        (quantities.seconds(577), "9 min 37 s"),
        (quantities.seconds(14_400), "4.0 h"),
        (quantities.share(0, 5), "0 %"),
        (quantities.share(5, 5), "100 %"),
        (quantities.share(1, 1000), "1 %"),
        (quantities.share(999, 1000), "99 %"),
        (quantities.plural(1, "run"), "1 run"),
        (quantities.plural(2000, "run"), "2,000 runs"),
    ],
)
def test_numbers_for_readers(text: str, expected: str) -> None:
    assert text == expected
