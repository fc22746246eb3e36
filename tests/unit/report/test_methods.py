"""A run of several methods in the report: a panel each, and the overlap of changed answers at the chosen rates."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from typer.testing import CliRunner

from fairwitness.analysis.faithfulness import ChosenRate
from fairwitness.analysis.overlap import MethodGroup, method_groups, overlap_table
from fairwitness.analysis.panels import Panel, build_panels
from fairwitness.analysis.runs import load_run
from fairwitness.cli import app
from fairwitness.records.run_dir import run_rows
from fairwitness.records.store import Store
from fairwitness.report.build import build_report

RANKS = (8, 128)
ALWAYS_FLIPPED = ("organism-001", "organism-007")
"""Problems that rank 8 flips at every iteration, and full FF2 not at the chosen rate."""


def with_ranks(folder: Path) -> Path:
    """Adds LoRA cells to the organism's: rank 8 that flips two problems more, rank 128 never feasible."""
    with Store(folder / "store") as store:
        rows = [row for row in store.read("unlearning").to_pylist() if row["scope_key"] == "scope-organism"]
        latest = run_rows(store)[-1]
        cells = list(latest["cell_keys"])
        for rank in RANKS:
            added = [_as_lora(row, rank) for row in rows]
            store.append("unlearning", added)
            cells += sorted({row["cell_key"] for row in added})
        store.append("runs", [{**latest, "key": "several", "created_at": latest["finished_at"], "cell_keys": cells}])
    return folder


def _as_lora(row: dict[str, Any], rank: int) -> dict[str, Any]:
    changed = {name: f"{row[name]}-{rank}" for name in ("key", "task_key", "cell_key")}
    row = {**row, **changed, "method": "lora", "lora_rank": rank}
    if rank == 128 and row["specificity"] is not None:
        row["specificity"] = 0.5
    if rank == 8 and row["problem_id"] in ALWAYS_FLIPPED and row["flipped"] is not None:
        row["flipped"] = True
    return row


@pytest.fixture(scope="module")
def several(tmp_path_factory: pytest.TempPathFactory, make_run: Callable[..., Path]) -> Path:
    return with_ranks(make_run(tmp_path_factory.mktemp("several")))


def groups_of(folder: Path) -> tuple[list[Panel], list[MethodGroup]]:
    found = load_run(folder)
    panels = build_panels(found)
    return panels, method_groups(panels, found.rng)


def test_a_panel_per_method_and_rank(several: Path) -> None:
    panels, groups = groups_of(several)
    names = [(panel.data_set, panel.method, panel.lora_rank) for panel in panels]
    assert names == [
        ("arc", "ff2", None),
        ("organism", "ff2", None),
        ("organism", "lora", 8),
        ("organism", "lora", 128),
    ]
    assert len({panel.slug for panel in panels}) == 4
    assert [panel.shown_method for panel in panels] == ["", "", "LoRA, rank 8", "LoRA, rank 128"]
    (group,) = groups
    assert [panel.lora_rank for panel in group.panels] == [None, 8, 128]
    assert {len(panel.cells) for panel in group.panels} == {3}


def test_overlap_with_full_ff2_at_the_chosen_rates(several: Path) -> None:
    _, (group,) = groups_of(several)
    first, second = group.panels[0].shown_problems, group.panels[1].shown_problems
    assert isinstance(group.panels[0].choice, ChosenRate)
    verdicts = [frame[frame["counted"]].set_index("problem_id")["ff_hard_any"].to_dict() for frame in (first, second)]
    one, two = ({name for name in found if found[name]} for found in verdicts)
    assert two == one | set(ALWAYS_FLIPPED)
    assert one
    found = group.pairs[0].any
    assert found is not None
    assert found.num_counted == len(verdicts[0]) == len(verdicts[1])
    assert (found.num_both, found.num_first_only, found.num_second_only) == (len(one), 0, len(two - one))
    assert found.num_second_only > 0
    assert found.same.numerator == found.num_counted - found.num_second_only


def test_a_method_without_feasible_rate_has_no_overlap(several: Path) -> None:
    _, (group,) = groups_of(several)
    pair = group.pairs[1]
    assert pair.any is None
    assert pair.final is None
    assert pair.reason is not None
    assert pair.reason.startswith("LoRA, rank 128: No feasible rate")
    table = overlap_table([group])
    assert list(table["flip_at"]) == ["any", "final", "any", "final"]
    assert table["num_both"].isna().tolist() == [False, False, True, True]
    assert table["reason"].isna().tolist() == [True, True, False, False]


def test_the_report_shows_methods_apart(several: Path) -> None:
    paths = build_report(several)
    page = paths.html.read_text(encoding="utf-8")
    assert '<h2 id="methods">' in page
    assert "LoRA, rank 128" in page
    table = pd.read_csv(paths.csv["overlap"])
    assert set(table["second_lora_rank"]) == set(RANKS)
    rates = pd.read_csv(paths.csv["rates"])
    assert len(rates[rates["lora_rank"] == 8]) == 3
    assert rates["chosen"].sum() == 2
    lost = pd.read_csv(paths.csv["skipped_failed"])
    assert set(lost["lora_rank"].dropna()) == set(RANKS)
    assert any(line.startswith("tiny/m on organism (LoRA, rank 8):\n  ") for line in paths.findings)


def test_the_command_prints_the_table(several: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    ended = CliRunner().invoke(app, ["overlap", str(several)])
    assert ended.exit_code == 0, ended.output
    assert "full FF2 at 5e-5 and LoRA, rank 8 at 5e-5" in ended.output
    assert "No feasible rate" in ended.output
    first, _, note = ended.output.partition("tiny/m on organism, full FF2 at 5e-5 and LoRA, rank 128")
    assert "…" not in first
    _, (group,) = groups_of(several)
    found = group.pairs[0].final
    assert found is not None
    assert found.jaccard.value is not None
    counts = (
        f"{found.num_both} by both, {found.num_first_only} by the first only, {found.num_second_only} by the second"
    )
    assert f"  changed at the final iteration, of {found.num_counted} problems:\n    {counts} only, " in first
    assert f"    Jaccard index {found.jaccard.value:.2f} (" in first
    assert first.count("Jaccard index") == first.count("same verdict, %") == 2
    assert "Jaccard" not in note
    assert max(map(len, first.splitlines())) <= 80


def test_a_run_of_one_method_says_so(run_dir: Path) -> None:
    ended = CliRunner().invoke(app, ["overlap", str(run_dir)])
    assert ended.exit_code == 2
    assert "the run has one method" in ended.output
    assert "overlap" not in build_report(run_dir).csv
    assert 'id="methods"' not in build_report(run_dir).html.read_text(encoding="utf-8")
