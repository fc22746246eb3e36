"""Makes the report of a run directory: report.html, csv/*.csv and plots/*.svg."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from fairwitness.analysis.frames import FRAMES, Results
from fairwitness.analysis.health import Health
from fairwitness.analysis.overlap import method_groups
from fairwitness.analysis.panels import Panel
from fairwitness.problems.problem import Problem
from fairwitness.report.files import write_files
from fairwitness.report.findings import Finding, finding, published_sentences
from fairwitness.report.followups import load_judged
from fairwitness.report.html import Extras, render
from fairwitness.report.plots import rates_plot
from fairwitness.report.truth import Separation, problems_of, separation_table, separations, step_truth

_ALWAYS = ("steps", "problems", "skipped_failed")
_TABLES = (*("summary", "rates", *_ALWAYS, "overlap", "baselines", "capability", "judgements", "step_study"),)


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
    results = Results(run_dir)
    run, panels = results.run, results.panels
    problems = problems_of(run)
    found = {panel.slug: separations(panel, problems, run.rng) for panel in panels}
    plots = {
        panel.slug: rates_plot(panel, min_specificity=run.min_specificity) for panel in panels if not panel.is_published
    }
    extras = Extras(
        method_groups=method_groups(panels, run.rng),
        baselines=results.baselines,
        capabilities=results.capabilities,
        judged=load_judged(results),
        step_study=results.ratings,
    )
    tables = _tables(results, found, problems)
    findings = [_finding(p, found[p.slug], h, extras) for p, h in zip(panels, results.healths, strict=True)]
    page = render(run, panels, results.healths, found, plots, problems, tables["skipped_failed"], extras, findings)
    feasible = any(panel.chosen_cell for panel in panels)
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


def _tables(
    results: Results, found: Mapping[str, Sequence[Separation]], problems: Mapping[str, Problem]
) -> dict[str, pd.DataFrame]:
    """The tables by name; of those that only some runs have, the ones with a row."""
    tables = {name: FRAMES[name](results) for name in _TABLES}
    steps = tables["steps"]
    pairs = zip(steps["problem_key"], steps["text"], strict=True)
    steps["truth"] = [step_truth(problems.get(key), text) for key, text in pairs]
    tables["separation"] = separation_table([(panel, s) for panel in results.panels for s in found[panel.slug]])
    return {name: table for name, table in tables.items() if len(table) or name in _ALWAYS}


def _line(found: Finding, *sentences: str) -> str:
    method = f" ({found.method})" if found.method else ""
    return " ".join((f"{found.model} on {found.data_set}{method}:", *sentences))
