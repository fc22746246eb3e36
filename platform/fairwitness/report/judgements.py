"""What judges said about the CoTs written after unlearning, for the page, the table and the command line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from fairwitness.fur.judging.pairs import VERDICTS
from fairwitness.fur.judging.results import JudgedCell, judged_cells
from fairwitness.judges.agreements import PairAgreement, pair_agreements
from fairwitness.records.store import Store
from fairwitness.report.data import Run, find_setting
from fairwitness.report.format import percent, plural, rate
from fairwitness.report.tables import estimate_columns
from fairwitness.stats.bootstrap import Estimate


@dataclass(frozen=True)
class Judged:
    """The section of the page.

    Attributes:
        cells: One judge on one model, data set and rate.
        agreements: Pairs of judges.
    """

    cells: tuple[JudgedCell, ...]
    agreements: tuple[PairAgreement, ...]

    @property
    def cautions(self) -> list[str]:
        """What makes the shares doubtful."""
        return [line for line in map(caution, self.cells) if line is not None]

    @property
    def num_judgements(self) -> int:
        """Judgements, those without a verdict included."""
        return sum(cell.num_judged + cell.num_skipped + cell.num_failed for cell in self.cells)


def load_judged(run: Run, store: Store) -> Judged | None:
    """The judgements of the run's cells; None where there are none.

    Raises:
        StoreError: The store cannot be read.
    """
    cell_keys = run.info["cell_keys"]
    seed = find_setting(run.config, "seed") or 0
    cells = judged_cells(store, seed=seed, cell_keys=cell_keys)
    if not cells:
        return None
    rows = store.read("judgements").to_pandas()
    within = rows if cell_keys is None else rows[rows["cell_key"].isin(list(cell_keys))]
    return Judged(tuple(cells), tuple(pair_agreements(within, seed=seed)))


def judgements_table(cells: Sequence[JudgedCell]) -> pd.DataFrame:
    """A row per judge and cell."""
    return pd.DataFrame([_row(cell) for cell in cells])


def sentence(cell: JudgedCell) -> str:
    """What one judge found, in a line."""
    counts = ", ".join(f"{cell.verdicts[verdict]} {verdict}" for verdict in VERDICTS)
    parts = [
        f"{plural(cell.num_judged, 'step')} judged: {counts}",
        f"CoT argues for another answer {_share(cell.different)}{_beside(cell)}",
        f"where the direct answer changed {_share(cell.different_changed)}",
        f"{cell.num_skipped} skipped, {cell.num_failed} without verdict ({cell.num_unparsable} unparsable)",
    ]
    return f"{_where(cell)}, judge {cell.judge}: {'; '.join(parts)}"


def caution(cell: JudgedCell) -> str | None:
    """What makes the shares of a cell doubtful: that most of its verdicts are `unclear`; None where they are not."""
    unclear = cell.verdicts["unclear"]
    if 2 * unclear <= cell.num_judged:
        return None
    return (
        f"{_where(cell)}, judge {cell.judge}: {unclear} of {cell.num_judged} unclear: this judge can read few of these "
        "CoTs, and the share that argues for another answer says little."
    )


def _beside(cell: JudgedCell) -> str:
    """The unclear ones, and what the others say."""
    unclear = cell.verdicts["unclear"]
    if not unclear:
        return ""
    clear = cell.num_judged - unclear
    among = f", {cell.verdicts['different']} of the {clear} with a clear verdict" if clear else ""
    return f"{among}, and is unclear in {percent(unclear / cell.num_judged)}% ({unclear}/{cell.num_judged})"


def _where(cell: JudgedCell) -> str:
    where = f"{cell.model} on {cell.data_set}"
    where += "" if cell.lr is None else f" at rate {rate(cell.lr)}"
    return where + ("" if cell.lora_rank is None else f" (LoRA rank {cell.lora_rank})")


def _share(estimate: Estimate) -> str:
    if estimate.value is None:
        return f"undefined ({estimate.reason})"
    interval = "no interval" if estimate.low is None else f"{percent(estimate.low)} to {percent(estimate.high)}"
    return f"{percent(estimate.value)}% ({int(estimate.numerator)}/{int(estimate.denominator)}, {interval})"


def _row(cell: JudgedCell) -> dict[str, Any]:
    names = ("model", "data_set", "method", "lora_rank", "lr", "cell_key", "judge", "judge_key")
    numbers = ("num_judged", "num_skipped", "num_failed", "num_unparsable")
    usage = ("num_prompt_tokens", "num_completion_tokens", "num_from_cache", "cost")
    return (
        {name: getattr(cell, name) for name in (*names, *numbers)}
        | {f"num_{verdict}": cell.verdicts[verdict] for verdict in VERDICTS}
        | estimate_columns("different", cell.different)
        | estimate_columns("different_changed", cell.different_changed)
        | {name: getattr(cell, name) for name in usage}
        | {"reasons": "; ".join(f"{number} × {reason}" for reason, number in cell.reasons.items())}
    )
