"""Tables of benchmarks: no training."""

import csv
from dataclasses import replace

import pytest

from manyhands import UserError
from manyhands.sweep import maps, tables


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
