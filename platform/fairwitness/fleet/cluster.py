"""The connection to Ray, and what the cluster can give."""

from __future__ import annotations

import json
import logging
import os
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import ray
import yaml
from ray._private.state import state as ray_state
from ray.autoscaler.v2.utils import is_autoscaler_v2
from ray.core.generated.autoscaler_pb2 import AutoscalingState, GetClusterStatusReply
from ray.experimental.internal_kv import _internal_kv_get, internal_kv_get_gcs_client

from fairwitness.errors import ResourceError
from fairwitness.fleet import code_path
from fairwitness.fleet.placement import ClusterView, Growth, NodeType

_log = logging.getLogger(__name__)
_BOOTSTRAP_CONFIG = Path("~/ray_bootstrap_config.yaml")
_STATUS_KEY = "__autoscaling_status"
_PROBE_S = 10.0
_HTTP2_HELLO = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0"
_HTTP2_SETTINGS = 4


@dataclass(frozen=True)
class Connection:
    """A connection of this process to Ray.

    Attributes:
        is_own_cluster: Whether this process started the cluster, so that no node can be added.
        is_owner: Whether `close` may disconnect (and end a cluster that was started).
        actor_env: Runtime environment that actors need to find our code.
    """

    is_own_cluster: bool
    is_owner: bool
    actor_env: dict[str, Any] = field(default_factory=dict)

    def close(self) -> None:
        """Disconnects, and ends the cluster if it was started here. A connection made by somebody else stays."""
        if self.is_owner and ray.is_initialized():
            ray.shutdown()


def connect(address: str | None, *, log_to_driver: bool) -> Connection:
    """Connects as `PoolConfig.address` says. An existing connection of this process is used as it is.

    Raises:
        ResourceError: There is no cluster at the address, or Ray cannot be started.
    """
    if ray.is_initialized():
        return Connection(False, False, code_path.actor_runtime_env(os.environ.get("PYTHONPATH")))
    address = address or os.environ.get("RAY_ADDRESS") or "local"
    if address == "local":
        return start_local(log_to_driver=log_to_driver)
    if "://" in address:
        raise ResourceError(f"Ray address {address!r} cannot be used; {_hint(address)}")
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        _probe(address)
        with _own_sigterm():
            ray.init(
                address=address,
                log_to_driver=log_to_driver,
                logging_level=logging.WARNING,
                runtime_env=code_path.job_runtime_env(os.environ) or None,
            )
    except (OSError, ValueError, RuntimeError) as error:
        raise ResourceError(f"no Ray cluster at {address!r}: {_first_line(error)}; {_hint(address)}") from error
    return Connection(False, True, code_path.actor_runtime_env(os.environ.get("PYTHONPATH")))


def _probe(address: str) -> None:
    """Makes sure that a server of Ray's kind answers at host:port, else OSError; with TLS nothing is checked."""
    # `ray.init` would try for a quarter of an hour. Ray speaks gRPC: the server must answer HTTP/2's greeting.
    host, sign, port = address.rpartition(":")
    if not sign or not port.isdecimal() or os.environ.get("RAY_USE_TLS", "0") not in ("", "0"):
        return
    with socket.create_connection((host.strip("[]"), int(port)), timeout=_PROBE_S) as stream:
        stream.sendall(_HTTP2_HELLO)
        frame = stream.recv(9)
    if len(frame) < 4 or frame[3] != _HTTP2_SETTINGS:
        raise ConnectionError("another server has this port")


def start_local(*, num_cpus: int | None = None, num_gpus: int | None = None, log_to_driver: bool = False) -> Connection:
    """Starts a Ray of our own on this machine; every port is one that is free.

    Args:
        num_cpus: CPUs that Ray may give out; None: those of the machine.
        num_gpus: GPUs that Ray may give out; None: those of the machine. More than there are is useful in tests only.
        log_to_driver: Print what the actors print.

    Raises:
        ResourceError: Ray cannot be started.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    # At 15, Ray's own choice, a sweep starves beside other work; the workers of --pool local are not niced either.
    os.environ.setdefault("RAY_worker_niceness", "0")
    _log.info("starting Ray on this machine")
    try:
        with code_path.exported_python_path(), _own_sigterm():
            ray.init(
                address="local",
                num_cpus=num_cpus,
                num_gpus=num_gpus,
                include_dashboard=False,
                log_to_driver=log_to_driver,
                logging_level=logging.ERROR,
            )
    except (OSError, ValueError, RuntimeError) as error:
        raise ResourceError(f"Ray cannot be started here: {_first_line(error)}; try --pool local") from error
    return Connection(True, True)


@contextmanager
def _own_sigterm() -> Iterator[None]:
    """Puts this process's own SIGTERM handler back; of `ray.init`'s two, one exits and one aborts after 3 s."""
    handler = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        if callable(handler) and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, handler)


def look(connection: Connection) -> ClusterView:
    """What the cluster has and may still get."""
    nodes = tuple(dict(node["Resources"]) for node in ray.nodes() if node["Alive"])
    if connection.is_own_cluster:
        return ClusterView(nodes, Growth.FIXED)
    declared = _reported_types() or _bootstrap_types(_BOOTSTRAP_CONFIG.expanduser())
    if declared is not None:
        return ClusterView(nodes, Growth.DECLARED, declared)
    return ClusterView(nodes, _growth())


def reported_infeasible(resources: dict[str, float]) -> bool:
    """Whether the autoscaler (version 2) says now that it has no node for a request; see `is_infeasible`."""
    reply = GetClusterStatusReply()
    reply.ParseFromString(internal_kv_get_gcs_client().get_cluster_status(timeout_s=10))
    return is_infeasible(reply.autoscaling_state, resources)


def is_infeasible(state: AutoscalingState, resources: dict[str, float]) -> bool:
    """Whether a report of the autoscaler (version 2) says that a request for these resources cannot be met.

    It says so too of what it cannot give *beside* the nodes that it is starting, or while a cluster is full. So nodes
    on their way count as a no; and this is to be asked only when no living node is big enough.
    """
    if state.pending_instances or state.pending_instance_requests:
        return False
    asked = {name: amount for name, amount in resources.items() if amount}
    return any(dict(request.resources_bundle) == asked for request in state.infeasible_resource_requests)


def bootstrap_types(text: str) -> tuple[NodeType, ...]:
    """Node types of a cluster that `ray up` made, from the configuration that it leaves on the head node."""
    config = yaml.safe_load(text)
    limit = config.get("max_workers")
    head = config.get("head_node_type")
    return tuple(
        NodeType(name, entry.get("resources") or None, entry.get("max_workers", limit))
        for name, entry in config.get("available_node_types", {}).items()
        if name != head
    )


def _bootstrap_types(path: Path) -> tuple[NodeType, ...] | None:
    try:
        return bootstrap_types(path.read_text(encoding="utf-8"))
    except OSError:
        return None


def _reported_types() -> tuple[NodeType, ...] | None:
    """Types that a managed cluster has reported to Ray's control store (most clusters report none)."""
    config = ray_state.get_cluster_config()
    if config is None or not config.node_group_configs:
        return None
    return tuple(
        NodeType(group.name, dict(group.resources), None if group.max_count < 0 else group.max_count)
        for group in config.node_group_configs
    )


def _growth() -> Growth:
    """FIXED when the cluster's own monitor says that it only mirrors the nodes it is given."""
    if is_autoscaler_v2(fetch_from_server=True):
        return Growth.UNKNOWN
    status = _internal_kv_get(_STATUS_KEY)
    if not status:
        return Growth.UNKNOWN
    return growth_from_status(json.loads(status))


def growth_from_status(status: dict[str, Any]) -> Growth:
    """Reads the status of autoscaler version 1.

    A monitor without an autoscaler makes up a node type `node_<node id>` for every node; an autoscaler names its own.
    """
    report = status.get("autoscaler_report") or {}
    types = [*(report.get("active_nodes") or {}), *(report.get("idle_nodes") or {})]
    pending = report.get("pending_launches") or report.get("pending_nodes")
    is_mirror = bool(types) and not pending and all(_is_made_up(name) for name in types)
    return Growth.FIXED if is_mirror else Growth.UNKNOWN


def _is_made_up(node_type: str) -> bool:
    prefix, _, node_id = node_type.partition("_")
    return prefix == "node" and len(node_id) == 56 and all(digit in "0123456789abcdef" for digit in node_id)


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


def _hint(address: str) -> str:
    if "://" in address:
        return "submit with `ray job submit`, or give host:port of the cluster as `address` or RAY_ADDRESS"
    return (
        "start one with `ray start --head` (if it asks for a token, set RAY_AUTH_MODE=token here too), or leave "
        "`address` and RAY_ADDRESS unset to use this machine"
    )
