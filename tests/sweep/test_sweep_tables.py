"""Presets, statistics and tables: no training."""

import csv
import json

import numpy as np
import pytest
from scipy.stats import trim_mean

from manyhands import UserError
from manyhands.cli import main
from manyhands.sweep import figures, tables
from manyhands.sweep import preset as presets
from manyhands.sweep.plan import Fleet, fleets
from manyhands.sweep.statistics import improvement, iqm, iqm_interval

# Presets


@pytest.mark.parametrize(
    ("name", "sets", "runs"),
    [
        ("smoke", 2, 16),
        # LBRAC-v for five K, and eight others, with five seeds
        ("paper-heterogeneous", 15, 15 * 13 * 5),
        ("paper-d4rl-style", 12, 12 * 13 * 5),
    ],
)
def test_built_in_presets(name, sets, runs):
    preset = presets.load(name)
    assert len(preset.data) == sets
    assert sum(len(fleet.keys) for fleet in fleets(preset)) == runs


def test_a_fleet_survives_json():
    (fleet, *_) = fleets(presets.load("smoke"), only=("lbrac_v",))
    assert Fleet.from_json(fleet.to_json()) == fleet
    assert [key.k for key in fleet.keys] == ["2", "2", "5", "5"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("data = ['a']\nseeds = [0]", "at least one"),
        ("seeds = [0]\n[[algo]]\nname = 'bc'", "data: expected at least one"),
        ("data = ['a']\nseeds = [0]\n[[algo]]\nname = 'magic'", "magic"),
        (
            "data = ['a']\nseeds = [0]\n[[algo]]\nname = 'bc'\nk = 3",
            "bc: expected no k",
        ),
        ("data = ['a']\nseeds = [0]\n[[algo]]\nname = 'bc'\nstpes = 3", "stpes"),
        ("data = ['a']\nseed = [0]\n[[algo]]\nname = 'bc'", "seed: expected one of"),
        ("data = ['a', 'a']\nseeds = [0]\n[[algo]]\nname = 'bc'", "no two alike"),
        ("data = [", "expected TOML"),
    ],
)
def test_what_is_wrong_in_a_preset_is_said(tmp_path, text, message):
    path = tmp_path / "mine.toml"
    path.write_text(text)
    with pytest.raises(UserError, match=message):
        presets.load(str(path))


def test_an_unknown_preset_or_part_is_refused():
    with pytest.raises(UserError, match="smoky: expected one of paper-d4rl-style"):
        presets.load("smoky")
    with pytest.raises(UserError, match="only: expected part of a name"):
        fleets(presets.load("smoke"), only=("nothing",))


# Statistics


@pytest.mark.parametrize("many", [4, 8, 100])
def test_the_interquartile_mean_is_the_mean_of_the_middle_half(many):
    scores = np.random.default_rng(0).normal(size=(3, many))
    np.testing.assert_allclose(iqm(scores), trim_mean(scores, 0.25, axis=1))


def test_ends_of_the_middle_half_count_in_part():
    # Of three runs the middle half is a quarter of the first and last: 3/4 to 9/4.
    assert iqm(np.array([3.0, 0.0, 1.0])) == pytest.approx(
        (0.25 * 0 + 1 + 0.25 * 3) / 1.5
    )
    assert iqm(np.array([2.0])) == 2.0


def test_intervals_hold_the_value_and_shrink_with_more_runs():
    random = np.random.default_rng(0)
    wide, narrow = (
        iqm_interval([random.normal(size=many) for _ in range(4)]) for many in (5, 500)
    )
    for found in (wide, narrow):
        assert found.low <= found.value <= found.high
    assert narrow.high - narrow.low < 0.3 * (wide.high - wide.low)
    assert abs(narrow.value) < 0.1


def test_improvement_counts_pairs():
    ours, theirs = [np.array([1.0, 3.0])], [np.array([0.0, 1.0, 2.0, 4.0])]
    # 1 wins against 0, ties with 1; 3 wins against 0, 1 and 2.
    assert improvement(ours, theirs).value == pytest.approx((1.5 + 3) / 8)
    assert improvement([np.ones(3)], [np.zeros(3)]) == (1.0, 1.0, 1.0)


# Tables


def row(data, label, k, seed, value):
    return {
        "data": data,
        "label": label,
        "k": k,
        "seed": seed,
        "return_mean": 100 * value,
        "normalized": 10 * value,
        "relative": value,
        "behaviors": 10.0,
        "trajectories": 7,
        "transitions": 7000,
    }


@pytest.fixture
def rows():
    made = []
    for seed in (0, 1):
        made += [
            row("zoo:hopper-heterogeneous-2", "bc", None, seed, 0.5 + 0.2 * seed),
            row("zoo:hopper-heterogeneous-2", "lbrac_v", "1", seed, 0.9),
            row("zoo:hopper-heterogeneous-2", "lbrac_v", "5", seed, 1.1),
            row("zoo:hopper-medium", "bc", None, seed, 4.0),
            row("zoo:hopper-medium", "lbrac_v", "1", seed, 5.0),
        ]
    return made


def test_cells_are_mean_and_deviation_of_the_best_k(rows):
    main = tables.tables(rows)[0]
    assert main.columns == ["data", "bc", "lbrac_v"]
    assert main.rows == [
        ["zoo:hopper-heterogeneous-2", "0.60 ± 0.10", "1.10 ± 0.00 (K = 5)"],
        ["zoo:hopper-medium", "40.0 ± 0.0", "50.0 ± 0.0 (K = 1)"],
    ]


def test_every_k_has_its_column_and_what_is_missing_is_empty(rows):
    by_name = {table.name: table for table in tables.tables(rows)}
    varying = by_name["varying-k-lbrac_v"]
    assert varying.columns == ["data", "K = 1", "K = 5"]
    assert varying.rows[1] == ["zoo:hopper-medium", "50.0 ± 0.0", ""]
    together = by_name["together-relative"]
    assert together.rows[1][:3] == ["lbrac_v", "1.10 [1.10, 1.10]", "1.00 [1.00, 1.00]"]


def test_three_formats_say_the_same(rows, tmp_path):
    page = tables.write(rows, tmp_path)
    assert "| zoo:hopper-medium | 40.0 ± 0.0 | 50.0 ± 0.0 (K = 1) |" in page.read_text()
    with (tmp_path / "main.csv").open() as file:
        assert list(csv.reader(file)) == [
            tables.tables(rows)[0].columns,
            *tables.tables(rows)[0].rows,
        ]
    tex = (tmp_path / "main.tex").read_text()
    assert r"zoo:hopper-medium & 40.0 $\pm$ 0.0 & 50.0 $\pm$ 0.0 (K = 1) \\" in tex
    assert r"lbrac\_v" in tex


def test_the_figure_needs_data_of_several_agents(rows, tmp_path):
    assert figures.write([r for r in rows if "medium" in r["data"]], tmp_path) == []
    (path,) = figures.write(rows, tmp_path)
    assert path.stat().st_size > 1000
    figure = figures.heterogeneous(rows)
    (axis,) = figure.axes
    heights = {line.get_label(): line.get_ydata() for line in axis.lines}
    assert heights["bc"] == pytest.approx([0.6])
    assert heights["lbrac_v"] == pytest.approx([1.1])


def test_the_report_of_a_benchmark(rows, tmp_path, capsys):
    made = "".join(json.dumps(r) + "\n" for r in rows)
    (tmp_path / "results.jsonl").write_text(made)
    assert main.run(["report", str(tmp_path)]) == 0
    assert "1.10 ± 0.00 (K = 5)" in capsys.readouterr().out
    assert (tmp_path / "figures" / "heterogeneous.png").exists()
