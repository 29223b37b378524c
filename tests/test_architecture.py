"""Imports point one way; the layers are those of ARCHITECTURE.md."""

import ast
from collections.abc import Iterator
from pathlib import Path

import manyhands

ROOT = Path(manyhands.__file__).parent
# Lowest first; a module may import from its own layer and from those before it.
LAYERS = [
    {"version", "errors", "files", "interrupts", "options", "types", "wording"},
    {"assign", "data", "nn"},
    {"envs", "fleet", "runs"},
    {"training"},
    {"behavior", "dynamics", "agents"},
    {"algos", "datasets"},
    {"report"},
    {"sweep"},
    {"cli"},
    {"__init__", "__main__"},
]
LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names}


def names(path: Path) -> Iterator[str]:
    """What a file imports, lazily or not, in full."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def imports(path: Path) -> set[str]:
    """Parts of the package that a file imports."""
    found = set()
    for name in names(path):
        first, _, rest = name.partition(".")
        part = rest.partition(".")[0]
        if first == "manyhands":
            found.add(part if part in LEVEL else "__init__")
    return found


def upward(level_of_file: int, imported: set[str]) -> list[str]:
    return sorted(part for part in imported if LEVEL[part] > level_of_file)


def test_no_import_points_upward():
    seen = set()
    for path in ROOT.rglob("*.py"):
        part = path.relative_to(ROOT).parts[0].removesuffix(".py")
        assert part in LEVEL, f"{part}: place it in a layer"
        seen.add(part)
        if part in ("__init__", "__main__"):
            continue
        wrong = upward(LEVEL[part], imports(path) - {"__init__"})
        assert not wrong, f"{path.relative_to(ROOT)} imports {wrong}"
    assert seen == set(LEVEL)


def test_no_module_imports_tools():
    """Tests can import programs of tools/, but the wheel does not hold them."""
    tools = {path.name for path in (ROOT.parents[1] / "tools").iterdir()}
    for path in ROOT.rglob("*.py"):
        found = {name.partition(".")[0] for name in names(path)} & tools
        assert not found, f"{path.relative_to(ROOT)} imports {found}"


def test_the_check_would_notice(tmp_path):
    culprit = tmp_path / "x.py"
    culprit.write_text("def f():\n    from manyhands.cli import main\n")
    assert upward(LEVEL["data"], imports(culprit)) == ["cli"]


def test_every_module_is_described_in_its_own_words():
    """ARCHITECTURE.md has the first paragraph of every module's docstring."""
    text = " ".join((ROOT.parents[1] / "ARCHITECTURE.md").read_text().split())
    for path in ROOT.rglob("*.py"):
        if path.name in ("__init__.py", "__main__.py", "version.py"):
            continue
        doc = ast.get_docstring(ast.parse(path.read_text())) or ""
        words = " ".join(doc.split("\n\n")[0].split())
        assert words, f"{path} has no docstring"
        line = f"{path.name} {words}"
        assert line in text, f"{line}: run python docs/build/architecture.py"
