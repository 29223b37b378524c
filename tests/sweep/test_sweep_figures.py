"""Figures of benchmarks, and the command that makes them again: no training."""

import json
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from results_rows import of_another_number

from manyhands import fit, make
from manyhands.cli import main
from manyhands.sweep import figures, maps


def test_the_figure_needs_data_of_several_agents(rows, tmp_path):
    assert figures.write(rows, tmp_path) == []  # a point is no line
    rows += of_another_number(rows)
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


def test_maps_along_a_fit_are_of_fixed_steps(tmp_path):
    """However long the fit takes, and wherever it is interrupted."""
    data = make("fork-2", 300)
    along = maps.Fitting({1: data}, tmp_path / "maps.json")
    tiny: Any = dict(steps=40, policy_width=8, batch_size=8)
    found = fit(data, k=[1, 2], inspect=along, **tiny)
    assert list(along.points.by_step) == [7, 20, 33]
    for points in along.points.by_step.values():
        assert list(points) == [1]  # the replica that is shown
        assert len(points[1]["xy"][0]) == len(data)
    shown = along.maps(1, found[1])
    assert shown is not None
    assert [point["step"] for point in shown["points"]] == [7, 20, 33, 40]
    # Another attempt knows what an earlier one has seen.
    again = maps.Fitting({1: data}, tmp_path / "maps.json")
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


def test_what_has_diverged_is_no_point_of_the_figure(rows):
    rows += of_another_number(rows)
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


def test_the_report_of_a_benchmark(rows, small, tmp_path, capsys):
    rows += of_another_number(rows)
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
