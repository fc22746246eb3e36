"""Planners for tests of trials. At module level, so that they travel."""

from __future__ import annotations

from collections.abc import Sequence

from fairwitness.fleet.trials import Settings, Shown


class FivePlanner:
    """Trials 0 to 4, in a round of three and a round of two."""

    def plan(self, done: Sequence[Shown]) -> Sequence[Settings]:
        ended = {one["x"] for one in done}
        return [{"x": x} for x in ([0, 1, 2] if len(ended) < 3 else [3, 4]) if x not in ended]
