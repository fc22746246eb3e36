"""Policy: can a cluster ever hold the workers asked for? Pure; `cluster.py` looks the facts up."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum


class Growth(Enum):
    """What is known about nodes that may still come."""

    FIXED = "fixed"
    """Nobody adds nodes by itself."""
    DECLARED = "declared"
    """An autoscaler adds nodes of the declared types."""
    UNKNOWN = "unknown"
    """An autoscaler adds nodes, or may, and does not say of which types."""


@dataclass(frozen=True)
class Need:
    """What one worker reserves."""

    num_cpus: float
    num_gpus: float

    def __str__(self) -> str:
        return f"{self.num_cpus:g} CPU, {self.num_gpus:g} GPU"


@dataclass(frozen=True)
class NodeType:
    """A kind of node that an autoscaler can start.

    Attributes:
        name: Its name in the cluster's configuration.
        resources: What a node has, by Ray's names; None when that is not declared.
        max_nodes: How many there can be; None without limit.
    """

    name: str
    resources: Mapping[str, float] | None
    max_nodes: int | None


@dataclass(frozen=True)
class ClusterView:
    """A cluster as far as it matters here.

    Attributes:
        nodes: Total resources of every living node, by Ray's names, whether in use or not.
        growth: What is known about nodes that may still come.
        node_types: The declared types, when growth is DECLARED.
    """

    nodes: tuple[Mapping[str, float], ...]
    growth: Growth
    node_types: tuple[NodeType, ...] = ()


def num_on_node(need: Need, resources: Mapping[str, float]) -> float:
    """How many workers a node with these resources can hold (infinite when they need nothing)."""
    by_cpus = math.floor(resources.get("CPU", 0.0) / need.num_cpus + 1e-9) if need.num_cpus else math.inf
    gpus = math.floor(resources.get("GPU", 0.0) + 1e-9)
    if not need.num_gpus:
        by_gpus = math.inf
    elif need.num_gpus < 1:
        by_gpus = gpus * math.floor(1 / need.num_gpus + 1e-9)
    else:
        by_gpus = gpus // math.floor(need.num_gpus)
    return min(by_cpus, by_gpus)


def is_on_a_node(need: Need, view: ClusterView) -> bool:
    """Whether a living node is big enough for one worker, busy or not."""
    return any(num_on_node(need, node) >= 1 for node in view.nodes)


def refusal(need: Need, num_workers: int, view: ClusterView) -> str | None:
    """Says why the cluster can never hold `num_workers` workers at once.

    A cluster in which they would have to wait for others is not refused; nor is one that may grow in ways not known.

    Args:
        need: What each worker reserves.
        num_workers: How many are the least that is asked for.
        view: The cluster.

    Returns:
        None, or one sentence with what was asked and what there is.
    """
    if view.growth is Growth.UNKNOWN:
        return None
    capacity = sum(num_on_node(need, node) for node in view.nodes)
    if view.growth is Growth.DECLARED:
        # Living nodes may be of these types too: rather count them twice than refuse what could be given.
        capacity += sum(_num_on_type(need, node_type) for node_type in view.node_types)
    if capacity >= num_workers:
        return None
    if capacity == 0:
        return f"no node can hold a worker of {need}; {what_there_is(view)}"
    return f"{num_workers} workers of {need} each were asked for, the cluster holds {capacity:g}; {what_there_is(view)}"


def what_there_is(view: ClusterView) -> str:
    """The nodes, and the types that may still come, in words."""
    text = f"there {'are' if len(view.nodes) > 1 else 'is'} {_count(view.nodes)}"
    if view.growth is Growth.DECLARED:
        types = ", ".join(f"{node.name} ({_resources(node.resources)})" for node in view.node_types)
        text += f", and the autoscaler can start {types or 'nothing'}"
    return text


def _num_on_type(need: Need, node_type: NodeType) -> float:
    if node_type.max_nodes == 0:
        return 0
    if node_type.resources is None:
        return math.inf
    on_one = num_on_node(need, node_type.resources)
    if on_one == 0:
        return 0
    return math.inf if node_type.max_nodes is None else on_one * node_type.max_nodes


def _count(nodes: Sequence[Mapping[str, float]]) -> str:
    if not nodes:
        return "no node"
    counts = Counter(_resources(node) for node in nodes)
    return ", ".join(f"{count} node{'s' if count > 1 else ''} with {text}" for text, count in sorted(counts.items()))


def _resources(resources: Mapping[str, float] | None) -> str:
    if resources is None:
        return "resources not declared"
    return f"{resources.get('CPU', 0.0):g} CPU, {resources.get('GPU', 0.0):g} GPU"
