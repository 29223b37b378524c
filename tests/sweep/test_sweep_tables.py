"""Statistics, tables and figures: no training."""

import csv
import json
from dataclasses import replace
from types import SimpleNamespace

import jax
import numpy as np
import pytest
from scipy.stats import trim_mean

from manyhands import UserError
from manyhands.behavior.fitting import Fitting, codes_to_start_with
from manyhands.behavior.options import Options
from manyhands.behavior.problem import prepare
from manyhands.cli import main
from manyhands.runs import Run
from manyhands.sweep import figures, maps, tables
from manyhands.sweep.statistics import improvement, iqm, iqm_interval

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
    widths = []
    for value, low, high in (wide, narrow):
        assert low is not None
        assert high is not None
        assert low <= value <= high
        widths.append(high - low)
    assert widths[1] < 0.3 * widths[0]
    assert abs(narrow.value) < 0.1


def test_runs_are_drawn_anew_within_tasks():
    """Across tasks, as if they were one, these would have intervals."""
    tasks = [np.zeros(5), np.full(5, 100.0)]
    assert iqm_interval(tasks) == (50.0, 50.0, 50.0)
    assert improvement(tasks, tasks[::-1]) == (0.5, 0.5, 0.5)


def test_every_task_has_the_same_weight():
    assert iqm_interval([np.full(5, 1.0), np.full(2, 3.0)]).value == pytest.approx(2.0)
    scores = np.random.default_rng(0).normal(size=12)
    doubled = iqm(np.repeat(scores, 2))
    assert iqm(scores, np.full(12, 2.0)) == pytest.approx(doubled)


def test_of_single_runs_there_are_no_intervals():
    few, more = [np.array([1.0]), np.array([2.0])], [np.zeros(3), np.zeros(3)]
    assert iqm_interval(few) == (1.5, None, None)
    assert improvement(few, more) == (1.0, None, None)
    assert improvement(more, few) == (0.0, None, None)


def test_an_interval_of_improvement_has_the_spread_of_its_draws():
    """Ours wins against theirs whenever the better of its two runs is drawn: the share
    of that in two draws is 0, 1/2 or 1."""
    value, low, high = improvement([np.array([0.0, 2.0])], [np.ones(2)])
    assert (value, low, high) == (0.5, 0.0, 1.0)


def test_what_has_diverged_is_worse_than_all_others():
    lost = np.array([5.0, -np.inf, 5.0])
    assert improvement([lost], [np.zeros(3)]).value == pytest.approx(2 / 3)
    assert improvement([np.zeros(3)], [lost]).value == pytest.approx(1 / 3)
    assert improvement([lost], [lost]).value == pytest.approx(
        (4 * 0.5 + 1 * 0.5 + 2) / 9
    )
    value, low, high = iqm_interval([lost])
    assert (value, low, high) == (-np.inf, -np.inf, pytest.approx(5.0))
    many = np.array([-np.inf, *[1.0] * 9])
    assert iqm(many) == 1.0  # among the lowest quarter


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
        "return_std": 1.0,
        "episodes": 20,
        "curve": [],
        "codes_used": None,
        "ari": None,
        "timing": {"updates": 9, "updates_per_second": 3.0, "device": "cpu"},
        "environment": {"cores": 2},
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


def test_what_has_diverged_is_never_the_best(rows):
    for row in rows:
        if row["k"] == "5" and row["seed"] == 1:
            # As strict JSON has it, where returns are no numbers.
            row |= dict.fromkeys(("return_mean", "relative", "normalized"))
            row["returns"] = [None, None]
    by_name = {table.name: table for table in tables.tables(rows)}
    main = by_name["main"]
    assert main.rows[0] == [
        "zoo:hopper-heterogeneous-2",
        "0.60 ± 0.10",
        "0.90 ± 0.00 (K = 1)",
    ]
    assert (0, 2) in main.best
    varying = by_name["varying-k-lbrac_v"]
    assert varying.rows[0][1:] == ["0.90 ± 0.00", "1 of 2 diverged"]
    assert (0, 1) in varying.best
    only = [row for row in rows if row["k"] == "5"]
    main = tables.tables(only)[0]
    assert main.rows == [["zoo:hopper-heterogeneous-2", "1 of 2 diverged"]]


def test_what_has_diverged_is_no_point_of_the_figure(rows):
    rows += _of_another_number(rows)
    for row in rows:
        if row["label"] == "bc" and row["seed"] == 1:
            row |= dict.fromkeys(("return_mean", "relative", "normalized"))
            row["returns"] = [None]
    figure = figures.heterogeneous(rows)
    assert figure is not None
    heights = {
        line.get_label(): list(line.get_ydata()) for line in figure.axes[0].lines
    }
    assert heights["bc"] == pytest.approx([0.5])  # of four agents, seed 0 alone
    assert len(heights["lbrac_v, best K"]) == 2


def test_a_single_seed_has_no_deviation(rows):
    main = tables.tables([row for row in rows if row["seed"] == 1])[0]
    assert main.rows[0][1:] == ["0.70", "1.10 (K = 5)"]


def test_cells_are_written_in_full(rows, tmp_path):
    rows[2] |= dict(return_mean=None, returns=[None], relative=None, normalized=None)
    path = tables.write_cells(rows, tmp_path / "cells.csv")
    with path.open(newline="") as file:
        cells = {(c["data"], c["algorithm"], c["k"]): c for c in csv.DictReader(file)}
    assert len(cells) == 5
    bc = cells["zoo:hopper-heterogeneous-2", "bc", ""]
    assert (bc["units"], bc["runs"], bc["diverged"]) == ("relative", "2", "0")
    assert float(bc["mean"]) == pytest.approx(0.6)
    assert float(bc["std"]) == pytest.approx(0.1)
    lost = cells["zoo:hopper-heterogeneous-2", "lbrac_v", "5"]
    assert (lost["diverged"], lost["mean"], lost["std"]) == ("1", "", "")


def test_tables_of_earlier_results_go_away(rows, tmp_path):
    tables.write(tables.tables(rows), tmp_path)
    (tmp_path / "mine.md").write_text("A note of mine.")
    (tmp_path / "main-of-mine.md").write_text("Another.")
    assert (tmp_path / "varying-k-lbrac_v.md").exists()
    some = [row for row in rows if row["label"] == "bc"]
    tables.write(tables.tables(some), tmp_path)
    kinds = {path.stem for path in tmp_path.iterdir()}
    assert "varying-k-lbrac_v" not in kinds
    assert {"main", "mine", "main-of-mine"} < kinds


def test_captions_say_how_many_seeds_there_are(rows):
    def captions(some):
        return [t.caption for t in tables.tables(some) if t.name in names]

    names = "main", "varying-k-lbrac_v"
    best = "; with several K, the best one on average"
    assert captions(rows) == [
        f"Scores, mean ± standard deviation over 2 seeds{best}",
        "lbrac_v for every K, over 2 seeds",
    ]
    one_less = [r for r in rows if (r["k"], r["seed"]) != ("1", 1)]
    assert captions(one_less) == [
        f"Scores, mean ± standard deviation over 1 to 2 seeds{best}",
        "lbrac_v for every K, over 1 to 2 seeds",
    ]
    assert captions(rows[:1])[0] == "Scores, mean ± standard deviation over 1 seed"
    assert "over 0 seeds" in captions([rows[0] | {"return_mean": None}])[0]


def test_runs_on_different_data_of_one_name_are_not_averaged(rows):
    for n, one in enumerate(rows):
        one["fingerprint"] = "abc"
        one["transitions"] = 7000 + n
    assert tables.tables(rows)
    rows[-1]["fingerprint"] = "def"
    with pytest.raises(
        UserError,
        match=r"^zoo:hopper-medium: expected results of one data set, got some of "
        r"7,003 transitions \(fingerprint abc\) and some of 7,009 \(def\)$",
    ):
        tables.tables(rows)


def test_every_k_has_its_column_and_what_is_missing_is_empty(rows):
    by_name = {table.name: table for table in tables.tables(rows)}
    varying = by_name["varying-k-lbrac_v"]
    assert varying.columns == ["data", "K = 1", "K = 5"]
    assert varying.rows[1] == ["zoo:hopper-medium", "50.0 ± 0.0", ""]


def test_no_k_is_chosen_before_algorithms_are_compared(rows):
    """The best of several would be better by chance alone."""
    by_name = {table.name: table for table in tables.tables(rows)}
    together, sure = by_name["together-relative"], "1.00 [1.00, 1.00]"
    assert [row[:3] for row in together.rows[1:]] == [
        ["lbrac_v (K = 1)", "0.90 [0.90, 0.90]", sure],
        ["lbrac_v (K = 5)", "1.10 [1.10, 1.10]", sure],
    ]
    # On the other data set there is one of them alone.
    names = [row[0] for row in by_name["together-normalized"].rows]
    assert names == ["bc", "lbrac_v (K = 1)"]


def test_who_made_the_data_and_how_good_it_is(rows, small):
    # Trajectories 0 and 2 are of bob's colleague, 1 of ann, 3 (cut off) of cy.
    R, names = small.returns, small.source_names
    plain = maps.quality(small, None)  # Pendulum has no reference
    whose = [names[code] for code in small.sources]
    assert plain["data_score"] == pytest.approx(R.mean())
    assert plain["source_scores"] == {
        whose[0]: pytest.approx((R[0] + R[2]) / 2),
        whose[1]: pytest.approx(R[1]),
        whose[3]: None,
    }
    found = maps.quality(small, "Hopper-v5")
    score = 100 * (R.mean() + 20.272305) / (3234.3 + 20.272305)
    assert found["data_score"] == pytest.approx(score)
    nobody = replace(small, sources=None, source_names=())
    assert maps.quality(nobody, None)["source_scores"] == {}

    two = {"data_score": 8.25, "source_scores": {"ann": 6.0, "bob": None, "cy": 10.5}}
    mine = [r | two if "medium" not in r["data"] else r for r in rows]
    by_name = {table.name: table for table in tables.tables(mine)}
    assert by_name["data"].rows == [
        ["zoo:hopper-heterogeneous-2", "7", "7,000", "8.25", "10.0", "relative"],
        ["zoo:hopper-medium", "7", "7,000", "", "10.0", "normalized"],
    ]
    assert by_name["sources"].columns == ["data", "source 1", "source 2", "source 3"]
    assert by_name["sources"].rows == [
        ["zoo:hopper-heterogeneous-2", "6.00", "", "10.5"]
    ]
    assert "sources" not in [table.name for table in tables.tables(rows)]


def test_three_formats_say_the_same(rows, tmp_path):
    page = tables.write(tables.tables(rows), tmp_path)
    text = page.read_text()
    assert "| zoo:hopper-medium | 40.0 ± 0.0 | **50.0 ± 0.0 (K = 1)** |" in text
    assert "| zoo:hopper-heterogeneous-2 | 0.90 ± 0.00 | **1.10 ± 0.00** |" in text
    assert "| zoo:hopper-medium | 50.0 ± 0.0 |  |" in text  # nothing to compare with
    with (tmp_path / "main.csv").open() as file:
        assert list(csv.reader(file)) == [
            tables.tables(rows)[0].columns,
            *tables.tables(rows)[0].rows,
        ]
    tex = (tmp_path / "main.tex").read_text()
    best = r"\textbf{50.0 $\pm$ 0.0 (K = 1)}"
    assert rf"zoo:hopper-medium & 40.0 $\pm$ 0.0 & {best} \\" in tex
    assert r"lbrac\_v" in tex


def test_names_are_what_they_are_in_latex_too():
    table = tables.Table("t", "100%", ["data", r"a\b_c"], [["~/x^2 & ${y}#", "1 ± 0"]])
    tex = table.latex().splitlines()
    assert tex[3] == r"\caption{100\%}"
    assert tex[7] == r"data & a\textbackslash{}b\_c \\"
    name = r"\textasciitilde{}/x\textasciicircum{}2 \& \$\{y\}\#"
    assert tex[9] == rf"{name} & 1 $\pm$ 0 \\"


def test_tables_do_not_depend_on_what_ended_first(rows):
    ten = {"data": "zoo:hopper-heterogeneous-10"}
    rows += [row | ten for row in rows if row["data"] != "zoo:hopper-medium"]
    found = tables.tables(rows)
    assert tables.tables(rows[::-1]) == found
    names = [row[0].removeprefix("zoo:hopper-") for row in found[0].rows]
    assert names == ["heterogeneous-2", "heterogeneous-10", "medium"]


def _of_another_number(rows):
    return [r | {"data": "zoo:hopper-heterogeneous-4"} for r in rows[:3]]


def test_the_figure_needs_data_of_several_agents(rows, tmp_path):
    assert figures.write(rows, tmp_path) == []  # a point is no line
    rows += _of_another_number(rows)
    (path,) = figures.write(rows, tmp_path)
    assert path.stat().st_size > 1000
    figure = figures.heterogeneous(rows)
    (axis,) = figure.axes
    heights = {line.get_label(): line.get_ydata() for line in axis.lines}
    assert heights["bc"] == pytest.approx([0.6, 0.5])
    assert heights["lbrac_v, best K"] == pytest.approx([1.1, 1.1])
    assert axis.get_legend() is None  # it would hide lines, where there are many
    (legend,) = figure.legends
    assert [t.get_text() for t in legend.get_texts()] == ["bc", "lbrac_v, best K"]


def test_returns_are_drawn_as_they_are_spread(small, rows):
    about = maps.histogram(small)
    assert [sum(counts) for counts in about["counts"]] == np.bincount(
        small.sources
    ).tolist()
    assert (about["low"], about["high"]) == (small.returns.min(), small.returns.max())
    (axis,) = figures.returns([r | {"histogram": about} for r in rows[:2]]).axes
    heights = [bar.get_height() for bars in axis.containers for bar in bars]
    assert sum(heights) == len(small)
    assert axis.get_xlim()[0] <= small.returns.min()


def test_maps_are_planes_of_the_largest_variance():
    random = np.random.default_rng(0)
    percentile = np.linspace(0.5, 100, 200)
    # One direction that goes with returns, one smaller one, and hardly anything else.
    W = random.normal(size=(200, 8)) * [0, 30, 5, *[0.1] * 5]
    W[:, 0] = 2 * (50 - percentile)
    found = maps.place(W, W[[0, -1]], percentile)
    x, y = np.array(found["xy"])
    np.testing.assert_allclose(np.corrcoef(x, percentile)[0, 1], 1, atol=0.01)
    np.testing.assert_allclose(abs(np.corrcoef(y, W[:, 1])[0, 1]), 1, atol=0.01)
    assert np.abs([x, y]).max() == maps.GRID
    np.testing.assert_allclose(np.array(found["behaviors"])[0], x[[0, -1]], atol=1)
    assert found["variance"] > 0.98


def test_a_few_times_in_the_training_are_shown():
    assert maps.spread([], 100) == []
    assert maps.spread([40], 100) == [40]
    assert maps.spread(list(range(0, 100, 10)), 100) == [20, 50, 80]


def test_maps_along_training_come_from_checkpoints_of_the_fit(small, tmp_path):
    """As the fit writes them, but with any numbers in them."""
    run, options = Run(tmp_path / "fit"), Options(steps=40)
    problem = prepare(small, 0.1, True, 0)
    given = [1, 2], [0, 0], run, lambda done, shown: None, 0.0
    starts = [codes_to_start_with(k, len(small), options) for k in (1, 2)]
    fitting = lambda: Fitting([problem] * 2, "vq", options, *given)  # noqa: E731
    shapes = jax.eval_shape(lambda: fitting().snapshot)
    random = np.random.default_rng(0)
    numbers = jax.tree.map(lambda s: random.normal(size=s.shape), shapes)
    there = np.arange(max(starts)) < np.array(starts)[:, None]
    shown = {1: small}
    along = maps.Fitting(tmp_path / "fit", shown, tmp_path / "maps.json")
    along(0, {})
    assert along.points.by_step == {}  # there is no checkpoint yet
    run.write_checkpoint(numbers._replace(active=there), {"step": 7})
    along(8, {})
    assert list(along.points.by_step) == [7]
    assert list(along.points.by_step[7]) == [1]
    found = along.points.by_step[7][1]
    assert len(found["xy"][0]) == len(small)
    assert len(found["behaviors"][0]) == starts[1]
    # Another attempt knows what an earlier one has seen.
    again = maps.Fitting(tmp_path / "fit", shown, tmp_path / "maps.json")
    assert again.points.by_step == along.points.by_step


def test_a_row_of_panels_for_every_k(rows):
    def point(step: int, codes: int) -> dict:
        where = list(range(codes))
        place = {"xy": [[0, 1, 2], [3, 4, 5]], "behaviors": [where, where]}
        return {"step": step, "variance": 0.5, **place}

    about = {"percentile": [1, 50, 100], "codes": [0, 0, 1]}
    short = about | {"points": [point(9, 1)]}
    long = about | {"points": [point(3, 0), point(6, 2), point(9, 2)]}
    mine = [r for r in rows if r["data"].endswith("-2") and r["k"]]
    figure = figures.maps([mine[0] | {"maps": short}, mine[1] | {"maps": long}])
    titles = [axis.get_title() for axis in figure.axes]
    end = ["9 updates, 50%", "by code"]
    assert titles == ["", "", *end, "3 updates, 50%", "6 updates, 50%", *end]
    labels = [axis.get_ylabel() for axis in figure.axes]
    assert [label for label in labels if label] == ["K = 1", "K = 5"]
    dots, crosses = figure.axes[6].collections
    assert dots.get_array().tolist() == [1, 50, 100]
    assert len(crosses.get_offsets()) == 2
    assert figures.maps(mine) is None


def test_the_policy_is_among_the_behaviors_that_it_was_learnt_from(rows):
    random = np.random.default_rng(0)
    W = random.normal(size=(9, 8))
    model = SimpleNamespace(W=3 * W, E=2 * W[:2], e_pi=5 * W[7])  # directions count
    percentile = np.linspace(1, 100, 9)
    about = maps.with_policy(model, percentile)
    assert about is not None
    x, y = about["xy"]
    assert about["policy"] == [x[7:8], y[7:8]]
    assert about["behaviors"] == [x[:2], y[:2]]

    shown = {"percentile": percentile.tolist(), "codes": [0] * 9}
    shown["points"] = [{"step": 9, **maps.place(W, W[:2], percentile)}]
    mine = [r for r in rows if r["data"].endswith("-2") and r["k"]]
    learning = {"learning": [{"step": 4, **about}], "learnt": about}
    mine[0]["maps"], mine[1]["maps"] = shown | learning, shown
    figure = figures.maps(mine)
    titles = [axis.get_title().split(",")[0] for axis in figure.axes]
    along = ["4 updates of the policy", "after policy learning"]
    assert titles == ["9 updates", *along, "by code", "9 updates", "", "", "by code"]
    for axis in figure.axes[1:3]:
        *_, star = axis.collections
        assert np.array_equal(star.get_offsets(), [[x[7], y[7]]])
    assert "policy (star)" in figure.get_suptitle()


def test_what_has_diverged_has_no_map(small, tmp_path):
    """And is no reason to lose a fleet."""
    random = np.random.default_rng(0)
    W = random.normal(size=(len(small), 8))
    fine = SimpleNamespace(W=W, E=W[:2], e_pi=W[3])
    lost = SimpleNamespace(W=W, E=W[:2], e_pi=np.full(8, np.nan))
    learning = maps.Learning({0: small, 1: small}, tmp_path / "maps.json")
    learning(0, [fine, fine])
    learning(50, [lost, fine])
    again = maps.Learning({0: small, 1: small}, tmp_path / "maps.json")
    found = again.maps(0, lost, 100)
    assert [point["step"] for point in found["learning"]] == [0]
    assert "learnt" not in found
    found = again.maps(1, fine, 100)
    assert [point["step"] for point in found["learning"]] == [0, 50]
    assert found["learnt"]["policy"]


def test_maps_along_policy_learning(small, tmp_path):
    random = np.random.default_rng(0)

    def model(e_pi: int) -> SimpleNamespace:
        W = random.normal(size=(len(small), 8))
        return SimpleNamespace(W=W, E=W[:2], e_pi=W[e_pi])

    other = SimpleNamespace(E=np.eye(8))  # has no place for its policy
    models = [model(e_pi) for e_pi in (3, 2, 1, 0)]
    learning = maps.Learning({1: small}, tmp_path / "maps.json")
    for step, one in zip((0, 50, 100), models):
        learning(step, [one, one])
    found = learning.maps(1, models[3], 150)
    assert [one["step"] for one in found["learning"]] == [0, 50, 100]
    for one, e_pi in zip([*found["learning"], found["learnt"]], (3, 2, 1, 0)):
        x, y = one["xy"]
        shown = maps.chosen(len(small)).tolist().index(e_pi)
        assert one["policy"] == [[x[shown]], [y[shown]]]
    again = maps.Learning({1: small}, tmp_path / "maps.json")
    assert again.maps(1, models[3], 150) == found
    nowhere = maps.Learning({1: small}, tmp_path / "nothing.json")
    nowhere(0, [other, other])
    assert nowhere.maps(1, other, 150) == {}


def test_figures_do_not_depend_on_what_ended_first(rows, small):
    """Of several seeds with maps, as fleets in parts leave them, the first is shown."""
    about = maps.histogram(small)
    mine = [r | {"histogram": about} for r in rows]
    for one in mine:
        n = one["seed"]
        place = {"xy": [[0, 1, n], [3, 4, 5]], "behaviors": [[0], [0]]}
        points = [{"step": 9 + n, "variance": 0.5, **place}]
        one["maps"] = {"percentile": [1, 50, 100], "codes": [0] * 3, "points": points}
        one["k"] = one["k"] and {"1": "5", "5": "10"}[one["k"]]
    for order in (1, -1):
        names = [axis.get_title() for axis in figures.returns(mine[::order]).axes]
        assert names == ["zoo:hopper-heterogeneous-2", "zoo:hopper-medium"]
        some = [r for r in mine if r["k"] and "medium" not in r["data"]]
        figure = figures.maps(some[::order])
        labels = [axis.get_ylabel() for axis in figure.axes]
        assert [label for label in labels if label] == ["K = 5", "K = 10"]
        assert {axis.get_title() for axis in figure.axes} == {
            "9 updates, 50%",
            "by code",
        }
        assert "seed 0" in figure.get_suptitle()


def test_the_report_of_a_benchmark(rows, small, tmp_path, capsys):
    rows += _of_another_number(rows)
    rows[0]["histogram"] = maps.histogram(small)
    made = "".join(json.dumps(r) + "\n" for r in rows)
    (tmp_path / "results.jsonl").write_text(made)
    assert main.run(["report", str(tmp_path)]) == 0
    assert "1.10 ± 0.00 (K = 5)" in capsys.readouterr().out
    for name in ("heterogeneous", "returns"):
        assert (tmp_path / "figures" / f"{name}.png").stat().st_size > 1000
    assert (tmp_path / "report.html").exists()
    elsewhere = tmp_path / "elsewhere.html"
    assert main.run(["report", str(tmp_path), "--out", str(elsewhere)]) == 0
    assert elsewhere.read_text() == (tmp_path / "report.html").read_text()


@pytest.mark.parametrize(
    ("words", "error"),
    [
        ("{} {}", "{}: is a benchmark; expected it alone, got 2 directories"),
        ("{} --data some.npz", "data and how to read it: only for runs"),
        ("{} --out {}", "{}: expected a file to write to, got a directory"),
    ],
)
def test_what_the_report_of_a_benchmark_refuses(words, error, rows, tmp_path, capsys):
    (tmp_path / "results.jsonl").write_text(json.dumps(rows[0]) + "\n")
    assert main.run(["report", *words.replace("{}", str(tmp_path)).split()]) == 1
    assert error.replace("{}", str(tmp_path)) in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["results.jsonl"]
