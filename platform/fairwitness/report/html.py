"""Renders the report page: one file with its styles and script inside, nothing loaded from anywhere."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd
from markupsafe import Markup

from fairwitness.analysis.baselines import BaselineView
from fairwitness.analysis.capability import CellCapability
from fairwitness.analysis.health import Health
from fairwitness.analysis.overlap import MethodGroup
from fairwitness.analysis.panels import Panel
from fairwitness.analysis.ratings import PAPER_PEARSON, RatingSummary
from fairwitness.analysis.runs import CELL_RATES, Run, find_setting
from fairwitness.problems.problem import Problem
from fairwitness.report import format as fmt
from fairwitness.report.files import asset, environment
from fairwitness.report.findings import Finding
from fairwitness.report.followups import Judged
from fairwitness.report.losses import MAX_GROUPS, MAX_NAMED, loss_groups
from fairwitness.report.plots import strips_plot
from fairwitness.report.problem_views import SHADES, ProblemView, problem_views
from fairwitness.report.truth import Separation

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
    lost = loss_groups(losses)
    script = asset("report.js")
    page = environment().get_template("report.html.j2")
    return page.render(
        run=run,
        views=views,
        measured=[view for view in views if not view.panel.is_published],
        findings=findings,
        paper_pearson=PAPER_PEARSON,
        checks=checks,
        figures=figures,
        groups=lost[:MAX_GROUPS],
        num_more_groups=max(0, len(lost) - MAX_GROUPS),
        **vars(extras),
        max_items=MAX_NAMED,
        min_specificity=run.min_specificity,
        rates=[fmt.rate(lr) for lr in _rates(run, extras)],
        styles=sorted(run.cots["prompt_style"].dropna().unique()),
        seed=find_setting(run.config, "seed"),
        recipe=_recipe(run.config),
        config_text=json.dumps(run.config, indent=2, ensure_ascii=False),
        environment=_flat(run.environment),
        css=Markup(asset("report.css") + _shades()),
        script=Markup(script),
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
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
