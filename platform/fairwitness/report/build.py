"""Makes the report of a run directory: report.html (styles and script inside), csv/*.csv and plots/*.svg."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd
from markupsafe import Markup

from fairwitness.analysis.baselines import BaselineView
from fairwitness.analysis.capability import CellCapability
from fairwitness.analysis.frames import FRAMES, Results
from fairwitness.analysis.health import Health
from fairwitness.analysis.overlap import MethodGroup, method_groups
from fairwitness.analysis.panels import Panel
from fairwitness.analysis.ratings import PAPER_PEARSON, RatingSummary
from fairwitness.analysis.runs import CELL_RATES, Run, find_setting
from fairwitness.problems.problem import Problem
from fairwitness.report import format as fmt
from fairwitness.report.files import ReportPaths, environment, page_parts, write_files
from fairwitness.report.findings import Finding, finding, published_sentences
from fairwitness.report.followups import Judged, load_judged
from fairwitness.report.plots import rates_plot, strips_plot
from fairwitness.report.problem_views import SHADES, ProblemView, problem_views
from fairwitness.report.truth import Separation, problems_of, separation_table, separations, step_truth

MAX_PROBLEMS = 1500
"""Problems shown in full on the page, shared between the panels; the tables hold all."""
MIN_PROBLEMS_PER_PANEL = 10


@dataclass(frozen=True)
class PanelView:
    """A panel with all that the page shows of it."""

    panel: Panel
    health: Health
    separations: tuple[Separation, ...]
    rates_plot: Markup
    strips_plot: Markup | None
    problems: tuple[ProblemView, ...]

    @property
    def chosen_key(self) -> str | None:
        """Key of the cell that the rule chose."""
        return self.panel.chosen_cell.cell_key if self.panel.chosen_cell else None

    @property
    def num_hidden(self) -> int:
        """Problems that are only in the tables."""
        return len(self.panel.cots) - len(self.problems)


@dataclass(frozen=True)
class Extras:
    """What only some runs have; each has a section of its own, under these names in the template.

    Attributes:
        method_groups: Panels of several methods on the same CoTs.
        baselines: Baselines beside ff-hard.
        capabilities: General capability.
        judged: What judges said; None where there are no judgements.
        step_study: How ratings by people go with ff-soft, of all together and of each model and data set.
    """

    method_groups: Sequence[MethodGroup] = ()
    baselines: Sequence[BaselineView] = ()
    capabilities: Sequence[CellCapability] = ()
    judged: Judged | None = None
    step_study: Sequence[RatingSummary] = ()


@dataclass(frozen=True)
class Check:
    """One self-check of the run."""

    name: str
    value: Any
    limit: Any
    ok: bool
    detail: str


def render(
    run: Run,
    panels: Sequence[Panel],
    healths: Sequence[Health],
    separations: Mapping[str, Sequence[Separation]],
    plots: Mapping[str, str],
    problems: Mapping[str, Problem],
    losses: pd.DataFrame,
    extras: Extras,
    findings: Sequence[Finding],
) -> str:
    """The whole page. Equal arguments give equal text: the only times in it are the run's own.

    Args:
        run: The run.
        panels: Its panels.
        healths: Health of each panel.
        separations: Panel slug → how well the scores recover a known truth.
        plots: Panel slug → SVG of its rates.
        problems: problem_key → problem.
        losses: Result of `skipped_failed_table`.
        extras: What only some runs have.
        findings: What a reader should take away, in the order of the panels.
    """
    views = _views(panels, healths, separations, plots, problems)
    checks, figures = split_health({name: value for name, value in run.health.items() if name != CELL_RATES})
    page = environment().get_template("report.html.j2")
    return page.render(
        run=run,
        views=views,
        measured=[view for view in views if not view.panel.is_published],
        findings=findings,
        paper_pearson=PAPER_PEARSON,
        checks=checks,
        figures=figures,
        **vars(extras),
        **page_parts(run.config, losses, styles=["report.css"], script="report.js", more_styles=_shades()),
        min_specificity=run.min_specificity,
        rates=[fmt.rate(lr) for lr in _rates(run, extras)],
        styles=sorted(run.cots["prompt_style"].dropna().unique()),
        seed=find_setting(run.config, "seed"),
        recipe=_recipe(run.config),
        environment=_flat(run.environment),
    )


def _views(
    panels: Sequence[Panel],
    healths: Sequence[Health],
    separations: Mapping[str, Sequence[Separation]],
    plots: Mapping[str, str],
    problems: Mapping[str, Problem],
) -> list[PanelView]:
    limit = max(MIN_PROBLEMS_PER_PANEL, MAX_PROBLEMS // max(1, len(panels)))
    views = []
    for panel, health in zip(panels, healths, strict=True):
        found = tuple(separations[panel.slug])
        shown = [one for one in found if "iteration" not in one.score]
        views.append(
            PanelView(
                panel=panel,
                health=health,
                separations=found,
                rates_plot=Markup(plots.get(panel.slug, "")),
                strips_plot=Markup(strips_plot(shown)) if shown else None,
                problems=tuple(problem_views(panel, problems, limit=limit)),
            )
        )
    return views


def split_health(health: Mapping[str, Any], prefix: str = "") -> tuple[list[Check], dict[str, Any]]:
    """Separates self-checks (objects with `ok`) from other figures, at any depth; names are joined with a slash."""
    checks: list[Check] = []
    figures: dict[str, Any] = {}
    for key, value in health.items():
        name = f"{prefix}{key}"
        if isinstance(value, dict) and "ok" in value:
            checks.append(
                Check(name, value.get("value"), value.get("limit"), bool(value["ok"]), str(value.get("detail") or ""))
            )
        elif isinstance(value, dict):
            inner_checks, inner_figures = split_health(value, f"{name} / ")
            checks += inner_checks
            figures |= inner_figures
        else:
            figures[name] = value
    return checks, figures


def _rates(run: Run, extras: Extras) -> list[float]:
    judged = (cell.lr for cell in extras.judged.cells if cell.lr is not None) if extras.judged else ()
    return sorted({*run.unlearning["lr"].dropna(), *judged})


def _shades() -> str:
    # Red and green of different lightness and hue, so that they stay apart for most colour-blind readers.
    tones = (("t", "205,60,30"), ("g", "0,128,110"))
    rules = [
        f".{letter}{k}{{background:rgba({colour},{0.08 + 0.47 * k / SHADES:.3f})}}"
        for letter, colour in tones
        for k in range(1, SHADES + 1)
    ]
    return "\n".join(rules)


def _recipe(config: Mapping[str, Any]) -> dict[str, Any]:
    # What the objective does not have is null.
    flat = {name: value for name, value in _flat(find_setting(config, "recipe") or {}).items() if value is not None}
    methods = config.get("methods") or []
    if not methods:
        return flat
    shown = [" ".join(f"{key} {fmt.figure(value)}" for key, value in _flat(one["method"]).items()) for one in methods]
    kept = {name: value for name, value in flat.items() if not name.startswith("method.")}
    return kept | {"methods": "; ".join(shown)}


def _flat(value: Any, prefix: str = "") -> dict[str, Any]:
    if not isinstance(value, dict):
        return {}
    flat: dict[str, Any] = {}
    for key, inner in value.items():
        if isinstance(inner, dict):
            flat |= _flat(inner, f"{prefix}{key}.")
        else:
            flat[f"{prefix}{key}"] = ", ".join(map(str, inner)) if isinstance(inner, list) else inner
    return flat


_ALWAYS = ("steps", "problems", "skipped_failed")
_TABLES = ("summary", "rates", *_ALWAYS, "overlap", "baselines", "capability", "judgements", "step_study")


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
    return replace(
        write_files(run_dir, page, tables, plots),
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
