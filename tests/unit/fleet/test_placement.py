"""What a cluster can never give is refused; what it may give is not."""

from __future__ import annotations

import math

import pytest

from fairwitness.fleet.placement import ClusterView, Growth, Need, NodeType, is_on_a_node, num_on_node, refusal

ONE_GPU = {"CPU": 8.0, "GPU": 1.0, "memory": 1e9}
CPU_ONLY = {"CPU": 4.0}


@pytest.mark.parametrize(
    ("need", "resources", "number"),
    [
        (Need(1, 0), {"CPU": 2.0}, 2),
        (Need(0.5, 0), {"CPU": 2.0}, 4),
        (Need(0.1, 0), {"CPU": 0.3}, 3),
        (Need(1, 1), {"CPU": 8.0, "GPU": 4.0}, 4),
        (Need(1, 1), {"CPU": 2.0, "GPU": 4.0}, 2),
        (Need(0, 0.5), {"GPU": 2.0}, 4),
        # A fraction never spans two GPUs: 0.4 goes twice on each, not five times on both.
        (Need(0, 0.4), {"GPU": 2.0}, 4),
        (Need(0, 2), {"GPU": 5.0}, 2),
        (Need(1, 0), {"GPU": 1.0}, 0),
        (Need(0, 0), {}, math.inf),
    ],
)
def test_num_on_node(need: Need, resources: dict[str, float], number: float) -> None:
    assert num_on_node(need, resources) == number


def test_two_gpus_per_worker_on_nodes_with_one() -> None:
    view = ClusterView((ONE_GPU, ONE_GPU, CPU_ONLY), Growth.FIXED)
    assert refusal(Need(1, 2), 1, view) == (
        "no node can hold a worker of 1 CPU, 2 GPU; there are 1 node with 4 CPU, 0 GPU, 2 nodes with 8 CPU, 1 GPU"
    )
    assert not is_on_a_node(Need(1, 2), view)


def test_more_workers_than_fit() -> None:
    view = ClusterView((ONE_GPU, ONE_GPU), Growth.FIXED)
    assert refusal(Need(1, 1), 2, view) is None
    assert refusal(Need(1, 1), 3, view) == (
        "3 workers of 1 CPU, 1 GPU each were asked for, the cluster holds 2; there are 2 nodes with 8 CPU, 1 GPU"
    )


def test_a_declared_node_type_counts() -> None:
    big = NodeType("gpu.8x", {"CPU": 64.0, "GPU": 8.0}, 2)
    view = ClusterView((CPU_ONLY,), Growth.DECLARED, (big,))
    assert refusal(Need(1, 2), 8, view) is None
    assert refusal(Need(1, 2), 9, view) is not None
    assert refusal(Need(1, 16), 1, view) == (
        "no node can hold a worker of 1 CPU, 16 GPU; there is 1 node with 4 CPU, 0 GPU, and the autoscaler can start "
        "gpu.8x (64 CPU, 8 GPU)"
    )


@pytest.mark.parametrize(
    ("resources", "max_nodes", "is_refused"),
    [(None, 3, False), (None, None, False), ({"GPU": 2.0, "CPU": 1.0}, None, False), (None, 0, True), ({}, None, True)],
)
def test_node_types_without_resources_or_limit(
    resources: dict[str, float] | None, max_nodes: int | None, is_refused: bool
) -> None:
    view = ClusterView((), Growth.DECLARED, (NodeType("x", resources, max_nodes),))
    assert (refusal(Need(1, 2), 100, view) is not None) == is_refused


def test_a_cluster_that_may_grow_in_unknown_ways_is_not_refused() -> None:
    assert refusal(Need(1, 2), 5, ClusterView((CPU_ONLY,), Growth.UNKNOWN)) is None


def test_no_node_at_all() -> None:
    assert refusal(Need(1, 0), 1, ClusterView((), Growth.FIXED)) == (
        "no node can hold a worker of 1 CPU, 0 GPU; there is no node"
    )
