"""Makes the report of a run directory: report.html, csv/*.csv and plots/*.svg."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from fairwitness.analysis.faithfulness import ChosenRate
from fairwitness.analysis.health import Health, panel_health
from fairwitness.analysis.panels import Panel, build_panels, min_specificity, rng_for, with_others
from fairwitness.analysis.ratings import run_ratings, summarise_ratings
from fairwitness.analysis.runs import Run, load_run
from fairwitness.problems.problem import Problem
from fairwitness.records.store import Store
from fairwitness.report.files import write_files
from fairwitness.report.findings import Finding, finding, published_sentences
from fairwitness.report.followups import (
    baseline_views,
    baselines_table,
    capability_table,
    judgements_table,
    load_judged,
    run_capabilities,
    step_study_table,
)
from fairwitness.report.html import Extras, render
from fairwitness.report.overlap import method_groups, overlap_table
from fairwitness.report.plots import rates_plot
from fairwitness.report.tables import (
    problems_table,
    rates_table,
    separation_table,
    skipped_failed_table,
    steps_table,
    summary_table,
)
from fairwitness.report.truth import Separation, problem_from_row, separations


@dataclass(frozen=True)
class ReportPaths:
    """The files of a report.

    Attributes:
        html: The page.
        csv: The tables, by name without suffix: summary, rates, steps, problems, skipped_failed; separation where the
            problems carry a ground truth; overlap where the run has several methods; baselines, judgements, capability
            and step_study where there are any.
        plots: Figures as SVG, by panel.
        findings: What a reader should take away per model and data set: its name, and under it a line per sentence.
        is_feasible: Whether the rule selects a rate for some model and data set.
        cautions: What makes the findings doubtful, a line per model, data set and caution.
    """

    html: Path
    csv: Mapping[str, Path]
    plots: Mapping[str, Path]
    findings: tuple[str, ...]
    is_feasible: bool
    cautions: tuple[str, ...]


def build_report(run_dir: Path) -> ReportPaths:
    """Makes the report from what is stored, replacing an earlier one. The same store gives the same bytes.

    Args:
        run_dir: A run directory, `<output.dir>/<name>`. The job may still be running, or have been interrupted.

    Raises:
        StoreError: There is no run, the store cannot be read, or the report cannot be written.
    """
    run_dir = Path(run_dir)
    run = load_run(run_dir)
    store = Store(run_dir / "store", create=False)
    panels = with_others(run, build_panels(run))
    problems = _problems(run)
    healths = _healths(run, panels, problems)
    found = {panel.slug: separations(panel, problems, functools.partial(rng_for, run)) for panel in panels}
    plots = {
        panel.slug: rates_plot(panel, min_specificity=min_specificity(run))
        for panel in panels
        if not panel.is_published
    }
    extras = Extras(
        method_groups=method_groups(panels, functools.partial(rng_for, run)),
        baselines=baseline_views(run, panels),
        capabilities=run_capabilities(run),
        judged=load_judged(run, store),
        step_study=summarise_ratings(run_ratings(store)),
    )
    tables = _tables(run, panels, healths, found, problems) | _extra_tables(extras)
    # Without rows some have no columns either, and such a file cannot be read.
    tables = {name: table for name, table in tables.items() if len(table.columns)}
    findings = [_finding(p, found[p.slug], h, extras) for p, h in zip(panels, healths, strict=True)]
    page = render(run, panels, healths, found, plots, problems, tables["skipped_failed"], extras, findings)
    feasible = any(isinstance(panel.choice, ChosenRate) for panel in panels)
    cautions = [_line(one, caution) for one in findings for caution in one.cautions]
    cautions += extras.judged.cautions if extras.judged else []
    written = write_files(run_dir, page, tables, plots)
    return ReportPaths(
        **written._asdict(),
        findings=tuple("\n  ".join((_line(one), *one.sentences)) for one in findings),
        is_feasible=feasible,
        cautions=tuple(cautions),
    )


def _finding(panel: Panel, found: Sequence[Separation], health: Health, extras: Extras) -> Finding:
    judged = extras.judged.cells if extras.judged else ()
    return finding(panel, found, health, tuple(published_sentences(panel, judged, extras.step_study)))


def _problems(run: Run) -> dict[str, Problem]:
    rows = ((str(row["key"]), problem_from_row(row)) for row in run.problems.to_dict("records"))
    return {key: problem for key, problem in rows if problem is not None}


def _healths(run: Run, panels: Sequence[Panel], problems: Mapping[str, Problem]) -> list[Health]:
    gold = {key: problem.gold for key, problem in problems.items() if problem.gold is not None}
    return [panel_health(panel, gold, rng_for(run, panel.scope_key, "health")) for panel in panels]


def _tables(
    run: Run,
    panels: Sequence[Panel],
    healths: Sequence[Health],
    found: Mapping[str, Sequence[Separation]],
    problems: Mapping[str, Problem],
) -> dict[str, pd.DataFrame]:
    tables = {
        "summary": summary_table(panels, healths),
        "rates": rates_table(panels),
        "steps": steps_table(panels, problems),
        "problems": problems_table(panels, problems),
        "skipped_failed": skipped_failed_table(run, panels),
    }
    pairs = [(panel, one) for panel in panels for one in found[panel.slug]]
    if pairs:
        tables["separation"] = separation_table(pairs)
    return tables


def _line(found: Finding, *sentences: str) -> str:
    method = f" ({found.method})" if found.method else ""
    return " ".join((f"{found.model} on {found.data_set}{method}:", *sentences))


def _extra_tables(extras: Extras) -> dict[str, pd.DataFrame]:
    tables = {
        "overlap": overlap_table(extras.method_groups),
        "baselines": baselines_table(extras.baselines),
        "capability": capability_table(extras.capabilities),
        "judgements": judgements_table(extras.judged.cells) if extras.judged else pd.DataFrame(),
        "step_study": step_study_table(extras.step_study),
    }
    return {name: table for name, table in tables.items() if len(table)}
