from __future__ import annotations

import ast
import hashlib
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Mapping
from pathlib import Path

import pytest

import fairwitness
from fairwitness.records import code
from fairwitness.records.code import PLUMBING, closure, code_revision

SOURCES = Path(fairwitness.__file__).parent
FILES = {
    "__init__": '"""Made up."""',
    "errors": "class Bad(Exception): ...",
    "engine": "from pack.tools import add\nfrom pack.errors import Bad",
    "other": "import pack.engine",
    "tools/__init__": "",
    "tools/add": (
        "import pack.numbers as numbers\n\n"
        "def add(a: int, b: int = 2) -> int:\n    '''Adds.'''\n    # why\n    return a + b + numbers.ONE"
    ),
    "numbers": "ONE = 1",
}
ADD = FILES["tools/add"]


def made(folder: Path, changes: Mapping[str, str] | None = None) -> Path:
    """Writes the made-up package, with some files changed or added, and gives its folder."""
    package = folder / "pack"
    shutil.rmtree(package, ignore_errors=True)
    for name, text in {**FILES, **(changes or {})}.items():
        path = package / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return package


def revision(folder: Path, changes: Mapping[str, str] | None = None, *roots: str) -> str:
    return code._revision(made(folder, changes), roots or ("pack.engine",), ["pack.errors"])


def reached(folder: Path, changes: Mapping[str, str], *roots: str, stops: tuple[str, ...] = ()) -> str:
    """Names of the closure without `pack.`, in one line."""
    names = code._closure(made(folder, changes), roots or ("pack.engine",), stops)
    return " ".join(name.removeprefix("pack.") for name in names)


def test_the_closure_follows_imports_up_to_a_stop(tmp_path: Path) -> None:
    assert reached(tmp_path, {}) == "engine errors numbers tools tools.add"
    assert reached(tmp_path, {}, stops=("pack.errors",)) == "engine numbers tools tools.add"
    assert reached(tmp_path, {}, stops=("pack.tools",)) == "engine errors"
    assert reached(tmp_path, {}, "pack.numbers") == "numbers"
    assert reached(tmp_path, {}, "pack.numbers", "pack.errors", stops=("pack.errors",)) == "errors numbers"


@pytest.mark.parametrize(
    "changes",
    [
        {"tools/add": ADD.replace("# why", "# why not")},
        {"tools/add": ADD.replace("    # why\n", "")},
        {"tools/add": ADD.replace("Adds.", "Sums up.")},
        {"tools/add": ADD.replace("    '''Adds.'''\n", "")},
        {"tools/add": '"""A module that adds."""\n' + ADD},
        {"tools/add": ADD.replace("\n\n", "\n\n\n\n").replace("a + b", "(a +  b)").replace("a: int, ", "a: int,\n  ")},
        {"tools/add": ADD.replace("\n", "\r\n")},
        {"numbers": 'ONE = 1\n"""What is added."""'},
        {"numbers": "ONE = 0x1\npass"},
        {"tools/__init__": '"""Tools."""'},
        {"__init__": "__version__ = '2.0'"},
        {"engine": FILES["engine"] + "\nfrom typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import pack.other"},
        {"other": "ONE = 2"},
        {"tools/new": "ONE = 2"},
        {"errors": "class Bad(ValueError): ..."},
    ],
)
def test_what_computes_nothing_keeps_the_revision(tmp_path: Path, changes: dict[str, str]) -> None:
    assert changes.items().isdisjoint(FILES.items())
    # The import of TYPE_CHECKING itself is a statement like any other, so both sides have it.
    same = {"engine": FILES["engine"] + "\nfrom typing import TYPE_CHECKING"} if "engine" in changes else {}
    assert revision(tmp_path, changes) == revision(tmp_path, same)


def test_what_may_compute_gives_another_revision(tmp_path: Path) -> None:
    changes: list[dict[str, str]] = [
        {},
        {"numbers": "ONE = 2"},
        {"numbers": "ONE = 1.0"},
        {"numbers": "ONE = True"},
        {"numbers": "ONE = '1'"},
        {"numbers": "ONE = b'1'"},
        {"numbers": "ONE = None"},
        {"numbers": "ONE: int = 1"},
        {"numbers": "ONE = '\N{LATIN SMALL LETTER E WITH ACUTE}'"},
        {"numbers": "ONE = 'e\N{COMBINING ACUTE ACCENT}'"},
        {"numbers": "ONE = 1\nprint('loaded')"},
        {"tools/add": ADD.replace("= 2", "= 3")},
        {"tools/add": ADD.replace("a: int, b", "a: int, *, b")},
        {"tools/add": ADD.replace("a: int, b", "a: int, /, b")},
        {"tools/add": ADD.replace("a + b", "b + a")},
        {"tools/add": ADD.replace("a + b + numbers.ONE", "a + (b + numbers.ONE)")},
        {"tools/add": ADD.replace("'''Adds.'''", "'''Adds.'''.upper()")},
        {"tools/add": ADD.replace("return", "yield")},
        {"tools/__init__": "ONE = 1"},
        {"tools/__init__": "import warnings"},
        {"tools/__init__": "VERSION = '2.0'"},
        {"engine": FILES["engine"] + "\nimport pack.other"},
        {"engine": FILES["engine"] + "\nimport os"},
        {"engine": FILES["engine"].replace("pack.tools import", "pack.tools.add import")},
    ]
    assert len({revision(tmp_path, change) for change in changes}) == len(changes)


def test_the_name_of_a_module_counts(tmp_path: Path) -> None:
    files = {"a": "ONE = 1", "b": "ONE = 1"}
    assert revision(tmp_path, files, "pack.a") != revision(tmp_path, files, "pack.b")


@pytest.mark.parametrize(
    ("imports", "also"),
    [
        ("def run():\n    import pack.other", "other"),
        ("class A:\n    def run(self):\n        from pack import other", "other"),
        ("try:\n    import pack.other\nexcept ImportError:\n    pass", "other"),
        ("match 1:\n    case 1:\n        import pack.other", "other"),
        ("import os, pack.other as o", "other"),
        ("from pack import ONE, other", "other"),
        ("from pack.other import ONE", "other"),
        ("if TYPE_CHECKING:\n    import pack.errors\nelse:\n    import pack.other", "other"),
        ("if not TYPE_CHECKING:\n    import pack.other", "other"),
        ("if TYPE_CHECKING:\n    import pack.other", ""),
        ("import typing as t\nif t.TYPE_CHECKING:\n    import pack.other", ""),
        ("import package.other, os.path\nfrom packs import other", ""),
        ("from pack import ONE", ""),
        ("import pack", ""),
    ],
)
def test_where_an_import_stands(tmp_path: Path, imports: str, also: str) -> None:
    files = {"engine": f"ONE = 1\n{imports}", "other": "ONE = 1", "__init__": "ONE = 1"}
    assert reached(tmp_path, files) == f"engine {also}".strip()


def test_a_name_of_a_package_is_told_from_a_module_in_it(tmp_path: Path) -> None:
    files = {"tools/__init__": "def mul(): ...", "tools/sub": "import pack.numbers"}
    assert reached(tmp_path, files | {"engine": "from pack.tools import mul"}) == "engine tools"
    assert reached(tmp_path, files | {"engine": "from pack.tools import sub"}) == "engine numbers tools tools.sub"
    # Also where the file system does not tell A from a.
    assert reached(tmp_path, files | {"engine": "from pack.tools import Sub"}) == "engine tools"


def test_a_package_counts_with_what_its_init_imports(tmp_path: Path) -> None:
    files = {"tools/__init__": "import pack.other", "other": "import pack.errors", "engine": "import pack.tools.add"}
    assert reached(tmp_path, files) == "engine errors numbers other tools tools.add"
    assert reached(tmp_path, files, "pack.tools") == "errors other tools"


def test_a_package_wins_over_a_module_of_its_name(tmp_path: Path) -> None:
    # Which of the two is listed first depends on the file system; both orders are met here.
    files = {"tools": "import pack.other", "other": "ONE = 1", "numbers/__init__": "TWO = 2"}
    assert reached(tmp_path, files) == "engine errors numbers tools tools.add"
    assert revision(tmp_path, files) == revision(tmp_path, files | {"tools": "ONE = 1", "numbers": "ONE = 1"})
    assert revision(tmp_path, files) != revision(tmp_path, files | {"numbers/__init__": "TWO = 3"})


def test_imports_may_go_in_a_circle(tmp_path: Path) -> None:
    files = {"numbers": "import pack.engine\nONE = 1"}
    names = "engine errors numbers tools tools.add"
    assert reached(tmp_path, files) == reached(tmp_path, files, "pack.numbers") == names


@pytest.mark.parametrize(
    ("roots", "message"),
    [
        (("pack.nowhere",), r"no module pack\.nowhere$"),
        (("engine",), "no module engine$"),
        ((), "at least one module"),
        (("pack.tools",), r"pack\.tools holds no code"),
    ],
)
def test_roots_that_name_no_code_are_refused(tmp_path: Path, roots: tuple[str, ...], message: str) -> None:
    package = made(tmp_path)
    with pytest.raises(ValueError, match=message):
        code._revision(package, roots, ())


@pytest.mark.parametrize(
    ("imports", "message"),
    [
        ("\nimport pack.nowhere", r"pack\.engine imports pack\.nowhere"),
        ("from pack.nowhere import x", r"pack\.engine imports pack\.nowhere"),
        ("\nfrom . import tools", r"pack\.engine, line 2: a relative import"),
        ("from .tools import add", r"pack\.engine, line 1: a relative import"),
    ],
)
def test_imports_that_cannot_be_followed_are_refused(tmp_path: Path, imports: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        revision(tmp_path, {"engine": imports})


def test_a_star_import_of_ours_is_refused(tmp_path: Path) -> None:
    package = tmp_path / "fairwitness"
    made(tmp_path, {"engine": "from math import *\nfrom fairwitness.tools import *"}).rename(package)
    with pytest.raises(ValueError, match=r"fairwitness\.engine, line 2: `import \*`"):
        code._revision(package, ["fairwitness.engine"], ())


def test_a_stop_that_is_no_module_is_refused() -> None:
    with pytest.raises(ValueError, match=r"no module fairwitness\.furr"):
        code_revision("fairwitness.fur.unlearn", without=("fairwitness.furr",))


def test_the_text_of_a_tree_is_the_same_in_every_version_of_python() -> None:
    source = r"""
@wraps(f, *args, key=None, **rest)
async def run(a, /, b: int = 1, *c, d, e=-2.5e-30, **f) -> "list[int]":
    async with open(x) as y, z: await y[1:2, ..., ::-1]
    text = f"{a!r:>{b}.3f}\u00e9{{}}" 'c' f'{e=}' f"{d:}" f""
    return [i if (j := i) else lambda *k: 1j for i in text if i < 2 <= 3 not in {**g, 1: {b"2"}}]
class A(B, metaclass=C):
    n: int
    match n:
        case {"a": [1, *_], **r} | A(x=None, y=True) as s if s: del n
try: raise E from None
except* (X, Y) as error: global v
else: assert not a @ b, "why"
finally: c = print(*1, sep="\n")
"""
    found = code._Reader().read(ast.parse(source)).code
    assert (len(found), hashlib.sha256(found.encode()).hexdigest()[:16]) == (2911, "652ba8c5353d34d8")


@pytest.fixture(scope="module")
def copied(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of our sources."""
    folder = tmp_path_factory.mktemp("copy") / "fairwitness"
    for path in SOURCES.rglob("*.py"):
        target = folder / path.relative_to(SOURCES)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)
    return folder


ENGINES = ("fairwitness.fur.unlearn", "fairwitness.drafts.engine")


def test_the_closure_of_an_engine() -> None:
    names = closure("fairwitness.fur.unlearn")
    assert {"fairwitness.fur.unlearn", "fairwitness.lm.scoring"} < set(names)
    assert list(names) == sorted(names)
    for engine in ENGINES:
        aside = [name for name in closure(engine) if name.startswith((*PLUMBING, "fairwitness.raters"))]
        assert aside == []
    assert not any(name.startswith("fairwitness.drafts") for name in names)


@pytest.mark.parametrize("engine", ENGINES)
def test_an_engine_has_the_revision_of_its_closure(copied: Path, engine: str) -> None:
    here = code_revision(engine)
    assert code._revision(copied, [engine], PLUMBING) == here
    members = set(closure(engine))
    changed = {}
    for name, path in code._sources(copied, "fairwitness"):
        assert isinstance(path, Path)
        before = path.read_text(encoding="utf-8")
        path.write_text(f"{before}\n# A comment.\n{'ADDED = 1' if name not in members else ''}\n", encoding="utf-8")
        changed[path] = before
        if name in members:
            path.write_text(f"{before}\nADDED = 1\n", encoding="utf-8")
            assert code._revision(copied, [engine], PLUMBING) != here, name
            path.write_text(f"{before}\n# A comment.\n", encoding="utf-8")
    assert len(changed) > len(members) > 10
    assert code._revision(copied, [engine], PLUMBING) == here
    for path, before in changed.items():
        path.write_text(before, encoding="utf-8")


def test_the_revision_is_the_same_from_a_zip_and_in_another_process(copied: Path, tmp_path: Path) -> None:
    here = code_revision(*ENGINES)
    with zipfile.ZipFile(tmp_path / "our.zip", "w") as archive:
        for path in copied.rglob("*.py"):
            archive.write(path, path.relative_to(copied.parent))
    zipped = zipfile.Path(tmp_path / "our.zip", "fairwitness/")
    assert code._revision(zipped, ENGINES, PLUMBING) == here
    script = (
        f"import sys; sys.path[:0] = [{str(tmp_path / 'our.zip')!r}]\n"
        "from fairwitness.records.code import code_revision\n"
        f"print(code_revision(*reversed({ENGINES})), *sorted(set(sys.modules) & {{'torch', 'fairwitness.fur'}}))"
    )
    other = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)
    assert other.stdout == f"{here}\n"


def test_without_takes_modules_out() -> None:
    whole, part = (set(closure("fairwitness.fur.unlearn", without=stops)) for stops in ((), ("fairwitness.lm",)))
    assert part < whole
    assert not any(name.startswith("fairwitness.lm") for name in part)
    assert code_revision("fairwitness.fur.unlearn", without=("fairwitness.lm",)) != code_revision(
        "fairwitness.fur.unlearn"
    )
    assert len(code_revision("fairwitness.fur.unlearn")) == 32
