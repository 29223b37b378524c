"""The documentation is true: its code runs, its pages are current, its links lead."""

import csv
import importlib
import os
import re
import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tyro

import manyhands as mh
from manyhands.cli import main
from manyhands.data import formats
from manyhands.sweep import preset as presets

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
MAKEFILE = (ROOT / "Makefile").read_text()
COMMANDS = runpy.run_path(str(DOCS / "build" / "cli.py"))["COMMANDS"]
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
# As few updates as show that a call works; how well is for the suites of learners.
FEW = 20


def blocks(page: Path, language: str) -> list[str]:
    return [text for name, text in BLOCK.findall(page.read_text()) if name == language]


PAGES = [
    page
    for page in (ROOT / "README.md", *sorted(DOCS.glob("*.md")))
    if blocks(page, "python")
]


@pytest.fixture
def small(monkeypatch, tmp_path) -> dict[str, Any]:
    """What blocks may use, with calls that do less of the same."""
    monkeypatch.chdir(tmp_path)
    fit, train, evaluate, make = mh.fit, mh.train, mh.evaluate, mh.make

    def small_fit(data: Any, *words: Any, **options: Any) -> Any:
        if isinstance(options.get("k"), list):
            options["k"] = options["k"][:2]
        return fit(data, *words, **options | {"steps": FEW})

    def small_train(data: Any, *words: Any, **options: Any) -> Any:
        few = {"steps": FEW, "episodes": 0, "evaluations": 0}
        if "warm_up" in options:
            few["warm_up"] = 10
        if words and words[0] in ("mopo", "mopp"):
            few["model_steps"] = FEW  # of the dynamics, which come first
        return train(data, *words, **options | few)

    def small_evaluate(policy: Any, *words: Any, **options: Any) -> Any:
        return evaluate(policy, *words, **options | {"episodes": 2})

    def small_make(name: str, *words: Any, **options: Any) -> Any:
        return make("fork-3", 800)  # of one shape: compiled once

    for name, call in {
        "fit": small_fit,
        "train": small_train,
        "evaluate": small_evaluate,
        "make": small_make,
    }.items():
        monkeypatch.setattr(mh, name, call, raising=False)
    data = small_make("fork-2")
    known = dict(mh=mh, np=np, data=data, new_data=data, code=0)
    return known | {"observations": data.observations[:3], "__name__": "docs"}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_python_blocks_run(page, small):
    for text in blocks(page, "python"):
        exec(compile(text, str(page), "exec"), small)


@pytest.mark.slow
@pytest.mark.parametrize(
    "page", sorted((DOCS / "algorithms").glob("*.md")), ids=lambda page: page.stem
)
def test_python_blocks_of_the_algorithms_run(page, small):
    for text in blocks(page, "python"):
        exec(compile(text, str(page), "exec"), small)


def test_commands_of_the_quick_start_run(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    few = {
        "data make": "--transitions 800",
        "fit": f"--steps {FEW} --no-figures",
        "train": "--steps 20 --warm-up 5 --critic-width 16 --episodes 0",
    }
    ran = []
    pages = [DOCS / "quickstart.md", DOCS / "reading_the_report.md"]
    for text in [text for page in pages for text in blocks(page, "sh")]:
        for line in text.splitlines():
            program, *words = line.split()
            if program != "manyhands":
                continue
            kind = " ".join(words[:2]) if words[0] == "data" else words[0]
            # What is given last counts.
            assert main.run([*words, *few.get(kind, "").split()]) == 0, line
            ran.append(kind)
    assert ran == [
        "data make",
        "data info",
        "fit",
        "train",
        "report",
        "export-metrics",
        "report",
    ]
    assert (tmp_path / "report.html").exists()
    assert (tmp_path / "runs" / "fit" / "report.html").exists()
    assert (tmp_path / "runs" / "fit" / "tensorboard").is_dir()


def test_commands_of_your_data_run(small, tmp_path, capsys):
    page = DOCS / "your_data.md"
    exec(blocks(page, "python")[0], small)  # makes the file
    lines = [line for text in blocks(page, "sh") for line in text.splitlines()]
    assert len(lines) == 3
    for line in lines:
        assert main.run(line.split()[1:]) == 0, line
    assert mh.load("both.npz").source_names == ("mine#1", "mine#2")


def test_every_command_that_is_shown_is_one():
    """Those that take too long to run here, or have names for files, are parsed."""
    config = (tyro.conf.OmitSubcommandPrefixes,)
    seen = set()
    for page in (ROOT / "README.md", *DOCS.rglob("*.md")):
        for language, text in BLOCK.findall(page.read_text()):
            if language in ("python", "text"):
                continue
            for line in re.findall(r"^(?:\w*\$ )?manyhands (.*)$", text, re.MULTILINE):
                # Without what is said of it, after a # or some spaces.
                words = re.split(r" +#|  ", line)[0].split()
                tyro.cli(main.commands(words), args=words, config=config)
                seen.add(words[0])
            for target in re.findall(r"^make (\S+)", text, re.MULTILINE):
                assert re.search(rf"^{target}:", MAKEFILE, re.MULTILINE), target
    missing = {"demo"}  # no block shows it
    assert seen == {name for name, *_ in map(str.split, COMMANDS)} - missing


def test_the_preset_that_is_shown_loads(tmp_path):
    (text,) = blocks(DOCS / "benchmark.md", "toml")
    (tmp_path / "mine.toml").write_text(text)
    preset = presets.load(str(tmp_path / "mine.toml"))
    assert [entry.algo for entry in preset.entries] == ["iql", "lbrac_v"]


def test_what_stands_beside_the_main_table_was_measured():
    measured = {}
    for name in ("baselines", "model-based"):
        with (ROOT / "results" / name / "tables" / "main.csv").open() as file:
            for row in csv.DictReader(file):
                measured.setdefault(row["data"], {}).update(row)
    labels = "bc fisher_brc plas brac_v cql bcq mopo lbrac_v-2.5".split()
    page = (DOCS / "paper-map.md").read_text()
    rows = re.findall(r"^\| (\w+-medium[\w-]*) \| (.*) \|$", page, re.MULTILINE)
    assert len(rows) == 6
    for data, cells in rows:
        mine = [measured[f"zoo:{data}"].get(label, "-") for label in labels]
        shown = [cell.split(", ")[0] for cell in cells.split(" | ")]
        assert shown == [cell.split(" ")[0] for cell in mine]


def test_results_that_are_shown_are_those_that_were_measured(monkeypatch):
    monkeypatch.chdir(ROOT)
    table = runpy.run_path("benchmarks/policy_tables.py")
    first, second, third = (table[name]() for name in ("results", "whole", "weights"))
    assert Path("results/policies.md").read_text() == f"{first}\n{second}\n{third}"
    row = re.compile(r"^\| (\w+)-heterogeneous-(\d) \| (.*) \|$", re.MULTILINE)
    found, rest = row.findall(second), row.findall(first)
    page, readme = (DOCS / "lbrac_v.md").read_text(), Path("README.md").read_text()
    assert len(found) == 15
    assert len(rest) == 9
    for task, k, cells in found + rest:
        assert f"| {task}, k = {k} | {cells} |" in page
    weights = re.findall(r"^\| \w+-(?:medium|heter).*$", third, re.MULTILINE)
    assert len(weights) == 9
    for line in weights:
        assert line in page
        name, *_, clone, ours = line.strip("| ").split(" | ")
        if name.endswith("medium"):
            assert f"| {name} | {clone} | {ours} |" in readme
    for task, k, cells in found:
        if k == "5":
            brac, clone, ours, *_, best = cells.split(" | ")
            assert f"| {task} | {brac} | {clone} | {ours} | {best} |" in readme


def test_options_of_every_format_are_named():
    lines = (DOCS / "your_data.md").read_text().splitlines()
    for name in formats.FORMATS:
        (row,) = (line for line in lines if re.search(rf"files/fork-3\S*{name}", line))
        options = set(re.findall(r"`(\w+)`", row.rpartition("mh.load")[2]))
        assert options == formats.named(name).OPTIONS - {"source_from"}


def test_the_page_of_the_command_line_is_current(monkeypatch):
    monkeypatch.setattr(os, "environ", os.environ.copy())  # it changes some
    made = runpy.run_path(str(DOCS / "build" / "cli.py"))["page"]()
    assert made == (DOCS / "cli.md").read_text(), "run: make docs"


def test_files_of_every_format_are_made(tmp_path):
    from zipfile import ZipFile

    module = runpy.run_path(str(DOCS / "build" / "files.py"))
    module["make"](tmp_path, transitions=800, steps=FEW)
    expected = mh.make("fork-3", 800)
    for name in module["FORMATS"]:
        path = tmp_path / name
        if path.suffix == ".zip":
            with ZipFile(path) as archive:
                archive.extractall(path.with_suffix(""))
            path = path.with_suffix("")
        found = mh.load(path)
        assert np.array_equal(found.actions, expected.actions), name
        assert name in (DOCS / "your_data.md").read_text()
    for page in ("report.html", "benchmark.html"):
        assert (tmp_path / page).stat().st_size > 50_000


def test_the_site_builds_without_a_warning(tmp_path, monkeypatch):
    """All pages, as `make docs` has it; the files to download are made above."""
    pytest.importorskip("mkdocs", reason="mkdocs is not installed")
    pytest.importorskip("mkdocstrings", reason="mkdocstrings is not installed")
    from mkdocs.commands.build import build
    from mkdocs.config import load_config

    monkeypatch.syspath_prepend(str(DOCS / "build"))
    made = []
    monkeypatch.setattr(importlib.import_module("files"), "make", made.append)
    config = load_config(str(ROOT / "mkdocs.yml"), site_dir=str(tmp_path), strict=True)
    build(config)  # warnings are errors: it is strict
    assert made == [tmp_path / "files"]
    pages = {page.relative_to(DOCS).with_suffix("") for page in DOCS.rglob("*.md")}
    assert all((tmp_path / page).with_suffix(".html").exists() for page in pages)
    assert "responsibilities" in (tmp_path / "api.html").read_text()  # a docstring


def test_links_between_pages_lead_somewhere():
    pages = [ROOT / "README.md", *DOCS.rglob("*.md")]
    wrong = []
    for page in pages:
        for link in re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text()):
            made = link.startswith("files/")  # by the build of the site
            if "://" not in link and not made and not (page.parent / link).exists():
                wrong.append(f"{page.name}: {link}")
    assert not wrong


def test_every_page_is_in_the_menu():
    menu = (ROOT / "mkdocs.yml").read_text().partition("\nnav:\n")[2]
    named = set(re.findall(r": ([\w-]+\.md)$", menu, re.MULTILINE))
    assert named == {page.name for page in DOCS.glob("*.md")}


def test_every_public_name_is_in_the_reference():
    text = (DOCS / "api.md").read_text()
    for name in set(mh.__all__) - {"__version__"}:
        assert re.search(rf"\.{name}$", text, re.MULTILINE), name
