"""The shape of the repository: layout, import contracts, sizes, and what must never be committed."""

from __future__ import annotations

import ast
import platform
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
SOURCE_ROOTS = ("platform/fairwitness", "schemas/fairwitness_schemas")
MAX_LINES = 500
MAX_JOB_LINES = 60
MAX_FUNCTION_LINES = 60
MAX_FILE_BYTES = 12_000_000


@cache
def repository_files() -> tuple[Path, ...]:
    """Files that git tracks or would track. A source archive without git is walked instead."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listing = subprocess.run(command, cwd=ROOT, capture_output=True, check=False)
    if listing.returncode == 0:
        found = (ROOT / name for name in listing.stdout.decode().split("\0") if name)
    else:
        hidden = {".venv", "__pycache__", "results", "build", "dist"}
        found = (path for path in ROOT.rglob("*") if not hidden & set(path.relative_to(ROOT).parts))
    return tuple(sorted(path for path in found if path.is_file()))


def python_files(*folders: str) -> list[Path]:
    """Repository files ending in .py below the folders (paths relative to the root)."""
    parents = [ROOT / folder for folder in folders]
    return [path for path in repository_files() if path.suffix == ".py" and any(map(path.is_relative_to, parents))]


def text_of(path: Path) -> str | None:
    """The file as text, or None if it is binary."""
    data = path.read_bytes()
    return None if b"\0" in data[:8192] else data.decode("utf-8")


def names(paths: list[Path]) -> list[str]:
    """Paths relative to the root, for messages."""
    return [path.relative_to(ROOT).as_posix() for path in paths]


@pytest.mark.parametrize("root", ["platform", "schemas"])
def test_source_roots_are_not_packages(root: str) -> None:
    assert (ROOT / root).is_dir()
    assert not (ROOT / root / "__init__.py").exists()


def test_every_package_folder_has_an_init() -> None:
    folders = {path.parent for path in python_files(*SOURCE_ROOTS)}
    assert folders
    assert names(sorted(folder for folder in folders if not (folder / "__init__.py").exists())) == []


def test_standard_platform_module_wins_in_the_root() -> None:
    code = "import platform; print(platform.python_version())"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.strip()) == (0, platform.python_version()), done.stderr


def test_imports_keep_their_contracts() -> None:
    linter = Path(sys.executable).with_name("lint-imports")
    done = subprocess.run([linter, "--no-cache"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"Contracts: [1-9]\d* kept, 0 broken", done.stdout), done.stdout


def test_modules_stay_small() -> None:
    lengths = {path: len(path.read_text().splitlines()) for path in python_files("platform", "schemas", "benchmarks")}
    assert lengths
    assert {
        name: lengths[path]
        for path, name in zip(lengths, names(list(lengths)), strict=True)
        if lengths[path] > MAX_LINES
    } == {}


def test_jobs_stay_entry_points() -> None:
    jobs = [path for path in python_files("jobs") if path.parent == ROOT / "jobs"]
    assert jobs
    assert names([path for path in jobs if len(path.read_text().splitlines()) > MAX_JOB_LINES]) == []


def test_jobs_are_not_named_like_modules() -> None:
    jobs = [path.stem for path in python_files("jobs")]
    assert sorted(set(jobs) & (set(sys.stdlib_module_names) | {"ray", "torch", "mlflow", "fairwitness"})) == []


def test_functions_stay_short() -> None:
    long = []
    for path in python_files("platform", "schemas", "jobs"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                num_lines = (node.end_lineno or node.lineno) - node.lineno + 1
                if num_lines > MAX_FUNCTION_LINES:
                    long.append(f"{path.relative_to(ROOT)}:{node.lineno} {node.name} ({num_lines} lines)")
    assert long == []


def test_no_machine_paths() -> None:
    # Written in pieces, so that this file does not hold what it looks for.
    folders = "|".join(("work", "root", "tmp", "home", "Users", "mnt"))
    pattern = re.compile(rf"(?<![\w.~$}}/-])/(?:{folders})/\w")
    found = []
    for path in repository_files():
        for number, line in enumerate((text_of(path) or "").splitlines(), start=1):
            if pattern.search(line):
                found.append(f"{path.relative_to(ROOT)}:{number}: {line.strip()[:100]}")
    assert found == []


def test_no_registry_hosts() -> None:
    # Written in pieces, so that this file does not hold what it looks for.
    endings = {
        "org": ("py" + "pi", "files.python" + "hosted", "registry.np" + "mjs", "deb.debian", "download.py" + "torch"),
        "io": ("docker", "gh" + "cr", "qu" + "ay", "nv" + "cr", "gcr", "public.ecr"),
        "com": ("registry.yarn" + "pkg", "hub.docker"),
    }
    hosts = [f"{name}.{ending}" for ending, hosts in endings.items() for name in hosts]
    found = [
        f"{path.relative_to(ROOT)}: {host}"
        for path in repository_files()
        for host in hosts
        if host in (text_of(path) or "")
    ]
    assert found == []


def test_no_pickled_weights_are_committed() -> None:
    pickled = {".pt", ".pth", ".pkl", ".pickle", ".ckpt", ".joblib", ".npy", ".npz"}
    suspects = [
        path for path in repository_files()
        if path.suffix in pickled or path.read_bytes()[:2] in (b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05")
    ]  # fmt: skip
    assert names(suspects) == []


def test_nothing_unpickles_files() -> None:
    forbidden = {("torch", "load"), ("pickle", "load"), ("pickle", "Unpickler"), ("joblib", "load")}
    found = []
    for path in python_files("platform", "schemas", "jobs"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Attribute) and (ast.unparse(node.value), node.attr) in forbidden:
                found.append(f"{path.relative_to(ROOT)}:{node.lineno} {ast.unparse(node)}")
    assert found == []


def test_files_are_small_enough_to_ship() -> None:
    assert names([path for path in repository_files() if path.stat().st_size > MAX_FILE_BYTES]) == []


@pytest.mark.parametrize("name", ["aws", "gcp"])
def test_cluster_files_fit_rays_schema(name: str) -> None:
    util = pytest.importorskip("ray.autoscaler._private.util")
    config = yaml.safe_load((ROOT / "cluster" / f"{name}.yaml").read_text())
    util.validate_config(util.prepare_config(config))
    assert config["head_node_type"] in config["available_node_types"]


def test_runtime_env_is_one_that_ray_accepts() -> None:
    runtime_env = pytest.importorskip("ray.runtime_env")
    settings = yaml.safe_load((ROOT / "cluster" / "runtime_env.yaml").read_text())
    assert dict(runtime_env.RuntimeEnv(**settings)) == settings
    for folder in settings["env_vars"]["PYTHONPATH"].split(":"):
        assert (ROOT / folder).is_dir()
        assert folder not in settings["excludes"]


def test_cluster_files_agree_on_versions() -> None:
    pins = dict(line.split("==") for line in (ROOT / "constraints.txt").read_text().splitlines() if "==" in line)
    job = yaml.safe_load((ROOT / "cluster" / "rayjob.yaml").read_text())
    spec = job["spec"]["rayClusterSpec"]
    groups = [spec["headGroupSpec"], *spec["workerGroupSpecs"]]
    images = {container["image"] for group in groups for container in group["template"]["spec"]["containers"]}
    assert spec["rayVersion"] == pins["ray"]
    images |= {
        yaml.safe_load((ROOT / "cluster" / f"{name}.yaml").read_text())["docker"]["image"] for name in ("aws", "gcp")
    }
    version = re.search(r'__version__ = "(.+)"', (ROOT / "platform/fairwitness/version.py").read_text())
    assert version is not None
    assert images == {f"fairwitness:{version[1]}"}


def test_paper_index_leads_somewhere() -> None:
    rows = re.findall(
        r"^\|.*\| `([\w/]+\.py)` \| `([\w/]+\.py)` \|$", (ROOT / "docs/paper_index.md").read_text(), re.MULTILINE
    )
    assert len(rows) > 20
    wanted = {ROOT / "platform/fairwitness" / module for module, _ in rows} | {
        ROOT / "tests" / test for _, test in rows
    }
    assert names(sorted(path for path in wanted if not path.is_file())) == []


def test_links_between_documents_hold() -> None:
    broken = []
    for path in (path for path in repository_files() if path.suffix == ".md"):
        for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", path.read_text()):
            if "://" not in target and not (path.parent / target).exists():
                broken.append(f"{path.relative_to(ROOT)} → {target}")
    assert broken == []
