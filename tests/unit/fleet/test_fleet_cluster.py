"""Reading what a cluster says of itself, and finding our code on it, without a cluster."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from ray.core.generated.autoscaler_pb2 import AutoscalingState, PendingInstanceRequest, ResourceRequest

import fairwitness
from fairwitness.errors import ResourceError
from fairwitness.fleet import code_path
from fairwitness.fleet.cluster import bootstrap_types, connect, growth_from_status, is_infeasible
from fairwitness.fleet.placement import Growth, NodeType

NODE_ID = "c77a90149177b9a5a4734e25fc3ec62b6b5731c338d7490b4419d0d3"


@pytest.mark.parametrize(
    ("report", "growth"),
    [
        ({"active_nodes": {f"node_{NODE_ID}": 1}, "idle_nodes": None}, Growth.FIXED),
        ({"active_nodes": {}, "idle_nodes": {f"node_{NODE_ID}": 2}}, Growth.FIXED),
        ({"active_nodes": {"ray.head.default": 1}}, Growth.UNKNOWN),
        ({"active_nodes": {"node_gpu": 1}}, Growth.UNKNOWN),
        ({"active_nodes": {f"node_{NODE_ID}": 1}, "pending_launches": {"gpu": 1}}, Growth.UNKNOWN),
        ({}, Growth.UNKNOWN),
        (None, Growth.UNKNOWN),
    ],
)
def test_growth_from_status(report: dict[str, object] | None, growth: Growth) -> None:
    assert growth_from_status({"autoscaler_report": report}) is growth


def test_node_types_of_a_cluster_launcher_file() -> None:
    text = """
    max_workers: 6
    head_node_type: head
    available_node_types:
      head: {resources: {CPU: 4}, max_workers: 0}
      gpu: {resources: {CPU: 8, GPU: 1}, max_workers: 2, node_config: {InstanceType: g5.2xlarge}}
      cpu: {resources: {}, node_config: {}}
    """
    assert bootstrap_types(text) == (NodeType("gpu", {"CPU": 8, "GPU": 1}, 2), NodeType("cpu", None, 6))


@pytest.mark.parametrize(
    ("reported", "is_starting_nodes", "expected"),
    [
        ([{"CPU": 1.0, "GPU": 2.0}], False, True),
        ([{"CPU": 1.0, "GPU": 2.0}], True, False),
        ([{"CPU": 1.0}, {"GPU": 2.0}], False, False),
        ([], False, False),
    ],
)
def test_infeasible_is_what_no_node_can_still_give(
    reported: list[dict[str, float]], is_starting_nodes: bool, expected: bool
) -> None:
    state = AutoscalingState(
        infeasible_resource_requests=[ResourceRequest(resources_bundle=bundle) for bundle in reported],
        pending_instance_requests=[PendingInstanceRequest(count=1)] * is_starting_nodes,
    )
    assert is_infeasible(state, {"CPU": 1.0, "GPU": 2.0, "memory": 0.0}) is expected


@pytest.mark.parametrize("address", ["http://127.0.0.1:8265", "ray://10.0.0.1:10001"])
def test_address_of_a_job_server_is_refused(monkeypatch: pytest.MonkeyPatch, address: str) -> None:
    monkeypatch.setenv("RAY_ADDRESS", address)
    with pytest.raises(ResourceError, match="submit with `ray job submit`"):
        connect(None, log_to_driver=False)


def test_source_roots_reach_workers() -> None:
    root = Path(fairwitness.__file__).resolve().parents[1]
    assert root / "fairwitness" in code_path.package_folders()
    entries = code_path.python_path("/somewhere", root.parent).split(os.pathsep)
    assert entries[:2] == [str(root), root.name]
    assert entries[-1] == "/somewhere"
    assert len(entries) == len(set(entries))


def test_installed_packages_need_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    root = Path(fairwitness.__file__).resolve().parents[1]
    schemas = {folder.parent for folder in code_path.package_folders()} - {root}
    paths = {"purelib": str(root), "platlib": str(schemas.pop() if schemas else root)}
    monkeypatch.setattr(code_path.sysconfig, "get_path", paths.__getitem__)
    assert code_path.package_folders() == []
    assert code_path.actor_runtime_env(None) == {}
    assert code_path.job_runtime_env({}) == {}


def test_code_is_uploaded_unless_the_job_brings_it() -> None:
    uploaded = code_path.job_runtime_env({})["py_modules"]
    assert str(Path(fairwitness.__file__).resolve().parent) in uploaded
    for brought in ({"working_dir": "gcs://x.zip"}, {"py_modules": ["gcs://y.zip"]}):
        environment = {"RAY_JOB_CONFIG_JSON_ENV_VAR": json.dumps({"runtime_env": brought})}
        assert code_path.job_runtime_env(environment) == {}


def test_exported_python_path_is_taken_back(monkeypatch: pytest.MonkeyPatch) -> None:
    root = str(Path(fairwitness.__file__).resolve().parents[1])
    monkeypatch.delenv("PYTHONPATH", raising=False)
    with code_path.exported_python_path():
        assert os.environ["PYTHONPATH"].split(os.pathsep)[0] == root
    assert "PYTHONPATH" not in os.environ
    monkeypatch.setenv("PYTHONPATH", "/before")
    with code_path.exported_python_path():
        assert os.environ["PYTHONPATH"].endswith("/before")
    assert os.environ["PYTHONPATH"] == "/before"
