"""The page of a benchmark: its numbers are those of the results, in a real browser."""

import csv
import io
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from report_pages import content_of, figures_are_explained, pictures_come_out

from manyhands import UserError, write_report
from manyhands.envs.scores import normalized
from manyhands.sweep import page as pages
from manyhands.sweep import results, tables

RESULTS = Path(__file__).parents[2] / "results"  # of real benchmarks


@pytest.fixture(scope="module")
def rows() -> dict[str, list[dict[str, Any]]]:
    names = "varying-k", "heterogeneous", "baselines"
    return {name: results.read(RESULTS / name) for name in names}


@pytest.fixture(scope="module")
def written(rows, tmp_path_factory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("pages")
    return {
        name: pages.write(mine, name, folder / f"{name}.html")
        for name, mine in rows.items()
    }


def saved(browser, title: str) -> list[list[str]]:
    """What the button CSV of a figure saves."""
    text = browser.execute_script(
        """let text = null;
        const before = save;
        save = (blob, name) => { text = blob.text(); };
        document.querySelector(`figure[aria-label="${arguments[0]}"] [data-save=csv]`)
            .click();
        save = before;
        return text;""",
        title,
    )
    return list(csv.reader(io.StringIO(text)))


def text_of(browser, selector: str) -> list[str]:
    script = "return Array.from(document.querySelectorAll(arguments[0]), (e) => %s)"
    return browser.execute_script(script % "e.textContent.trim()", selector)


def drawn_without_numbers(browser) -> list[str]:
    """Wherever it may stand: in a text, in a path, in an attribute."""
    drawn = browser.execute_script("return document.getElementById('page').innerHTML")
    return re.findall(r".{20}(?:NaN|undefined|Infinity|\[object)", drawn)


# Its numbers


@pytest.mark.parametrize("name", ["varying-k", "heterogeneous", "baselines"])
def test_the_table_is_the_one_on_disk(name, rows, written, open_page):
    browser = open_page(written[name])
    main = tables.tables(rows[name])[0]
    shown = text_of(browser, "#scores tbody td")
    expected = [cell for row in main.rows for cell in row[1:]]
    minus = "\N{MINUS SIGN}"
    assert [cell.replace(minus, "-") for cell in shown] == [
        cell.replace(" (K", " K").replace(")", "") for cell in expected
    ]
    bold = [r * main.width + c - 1 for r, c in main.best]
    marked = [
        i
        for i, cell in enumerate(
            browser.execute_script(
                """return Array.from(document.querySelectorAll("#scores tbody td"),
                (e) => e.querySelector("b") !== null)"""
            )
        )
        if cell
    ]
    assert marked == sorted(bold)


def test_one_k_for_all_data_sets(rows, written, open_page):
    browser = open_page(written["varying-k"])
    browser.execute_script("""const choose = document.getElementById("k");
        choose.value = "20"; choose.dispatchEvent(new Event("change"));""")
    by_name = {table.name: table for table in tables.tables(rows["varying-k"])}
    columns = by_name["varying-k-lbrac_v"].columns
    expected = [
        row[columns.index("K = 20")] for row in by_name["varying-k-lbrac_v"].rows
    ]
    assert text_of(browser, "#scores tbody td") == expected


def test_a_chosen_data_set(rows, written, open_page):
    browser = open_page(written["heterogeneous"])
    browser.execute_script("""Array.from(document.querySelectorAll("#scores button"))
        .find((b) => b.textContent === "hopper-heterogeneous-3").click()""")
    assert browser.find_element("id", "which").get_attribute("value") == "7"
    pressed = text_of(browser, '#scores button[aria-pressed="true"]')
    assert pressed == ["hopper-heterogeneous-3"]
    mine = [
        r for r in rows["heterogeneous"] if r["data"].endswith("hopper-heterogeneous-3")
    ]
    found = {
        row[0]: row[1:] for row in saved(browser, "Learners on hopper-heterogeneous-3")
    }
    for label in ("brac_v", "lbrac_v", "lbrac_v-2.5"):
        scores = [r["relative"] for r in mine if r["label"] == label]
        expected = [np.mean(scores), min(scores), max(scores)]
        np.testing.assert_allclose(np.array(found[label], float), expected)
    assert found["who made the data"][0] == "1"
    curves = saved(browser, "While learning on hopper-heterogeneous-3")
    ends = {row[0]: row for row in curves[1:] if row[1] == "200000"}
    for label, row in found.items():
        if label in ends:
            assert float(ends[label][2]) == pytest.approx(float(row[0]))
    assert set(ends) == {"brac_v", "lbrac_v", "lbrac_v-2.5"}
    first = next(float(row[2]) for row in curves if row[:2] == ["lbrac_v", "0"])
    clones = [r["curve"][0][2] for r in mine if r["label"] == "lbrac_v"]
    assert first == pytest.approx(np.mean(clones), rel=1e-4)


def test_statistics_are_those_of_the_tables(rows, written, open_page):
    browser = open_page(written["heterogeneous"])
    by_name = {table.name: table for table in tables.tables(rows["heterogeneous"])}
    table = by_name["together-relative"]
    found = {
        row[0]: row for row in saved(browser, "Interquartile means, relative return")
    }
    better = {
        tuple(row[:2]): row[2:]
        for row in saved(browser, "Who is better, relative return")
    }
    for row in table.rows:
        value, low, high = (f"{float(x):.2f}" for x in found[row[0]][1:])
        assert row[1] == f"{value} [{low}, {high}]"
        for other, cell in zip(table.columns[2:], row[2:]):
            other = other.removeprefix("better than ")
            if cell:
                value, low, high = (f"{float(x):.2f}" for x in better[row[0], other])
                assert cell == f"{value} [{low}, {high}]"


def test_more_agents(rows, written, open_page):
    browser = open_page(written["heterogeneous"])
    for task in ("halfcheetah", "hopper", "walker2d"):
        lines = saved(browser, f"Agents of {task}")[1:]
        assert len(lines) == 3 * 5
        for label, agents, value, *_ in lines:
            scores = [
                r["relative"]
                for r in rows["heterogeneous"]
                if r["label"] == label
                and r["data"] == f"zoo:{task}-heterogeneous-{agents}"
            ]
            assert len(scores) == 3
            assert float(value) == pytest.approx(np.mean(scores))


def test_time_is_counted_once_for_each_fleet(rows, written):
    fleets = content_of(written["heterogeneous"])["fleets"]
    assert [(f["label"], f["runs"], len(f["data"])) for f in fleets] == [
        ("lbrac_v-2.5", 15, 5),
    ] * 3 + [("lbrac_v", 15, 5)] * 3 + [("brac_v", 15, 5)] * 3
    assert sum(f["runs"] for f in fleets) == len(rows["heterogeneous"])
    once = {(r["label"], r["fleet_seconds"]) for r in rows["heterogeneous"]}
    assert sum(f["seconds"] for f in fleets) == pytest.approx(sum(s for _, s in once))


def test_curves_are_in_the_units_of_the_score(rows, written):
    content = content_of(written["baselines"])
    seen = set()
    for run in content["runs"]:
        name, label = (content["data"][run["data"]], content["labels"][run["label"]])
        (row,) = (
            r
            for r in rows["baselines"]
            if (r["data"], r["label"], r["seed"])
            == (f"zoo:{name['name']}", label, run["seed"])
        )
        task = {"hopper": "Hopper-v5", "halfcheetah": "HalfCheetah-v5"}
        env = task[name["name"].partition("-")[0]]
        returns = np.array([plain for _, plain, _ in row["curve"]])
        expected = normalized(returns, env)
        assert expected is not None
        if name["units"] == "relative":
            expected = expected / row["behaviors"]
        steps, scores = zip(*run["curve"])
        np.testing.assert_allclose(scores[:-1], expected, rtol=1e-4)
        assert (steps[-1], scores[-1]) == (run["updates"], row[name["units"]])
        seen.add(name["units"])
    assert seen == {"relative", "normalized"}


# As a page


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("name", ["varying-k", "heterogeneous"])
def test_it_fits_the_screen_and_every_figure_is_explained(
    name, width, written, open_page
):
    browser = open_page(written[name], width, "dark" if width == 390 else "light")
    wide, seen = browser.execute_script(
        "const e = document.documentElement; return [e.scrollWidth, e.clientWidth]"
    )
    assert wide == seen
    assert figures_are_explained(browser) >= 9
    wanted = {
        "varying-k": "How many behaviors",
        "heterogeneous": "More agents",
    }
    sections = text_of(browser, "h2")
    assert [s for s in sections if s not in wanted.values()] == [
        "Scores",
        "One data set",
        "All data sets together",
        "The data sets",
        "What it cost",
    ]
    assert wanted[name] in sections
    assert drawn_without_numbers(browser) == []


def test_maps_along_training(rows, written, open_page):
    browser = open_page(written["varying-k"])
    panels = text_of(browser, ".panels")
    assert [text[:6].strip() for text in panels] == ["K = 1,", "K = 10", "K = 20"]
    shown = {
        r["k"]: r["maps"]
        for r in rows["varying-k"]
        if r["seed"] == 0 and "halfcheetah" in r["data"]
    }
    for (k, maps), text in zip(
        sorted(shown.items(), key=lambda one: int(one[0])), panels
    ):
        many = len(maps["points"]) + len(maps.get("learning", [])) + ("learnt" in maps)
        assert text.count("%") == many, k
        assert "by behavior" in text
    table = saved(browser, "Maps: lbrac_v on halfcheetah-heterogeneous-5")
    assert len({row[2] for row in table[1:]}) == 250


def test_pictures_come_out(written, open_page):
    pictures_come_out(open_page(written["varying-k"]))


@pytest.fixture
def plain(rows) -> list[dict[str, Any]]:
    """Of an environment without reference returns; names as bad as may be."""
    some = [r for r in rows["varying-k"] if r["k"] == "10"][:2]
    nothing: dict[str, Any] = dict(normalized=None, relative=None, behaviors=None)
    bad = {"data": "a & <b>b</b></script>.npz", "label": "x</script><i>", "k": None}
    return [
        json.loads(json.dumps(r)) | nothing | bad | {"seed": n}
        for n, r in enumerate(some)
    ]


def test_names_stay_text_and_plain_returns_will_do(plain, tmp_path, open_page):
    for row in plain:
        row["fingerprint"] = "same"
        row["maps"] = None
    browser = open_page(pages.write(plain, "mine <i>", tmp_path / "page.html"))
    assert text_of(browser, "h1") == ["mine <i>: results"]
    assert text_of(browser, "#scores tbody th") == [plain[0]["data"]]
    mean = np.mean([r["return_mean"] for r in plain])
    (cell,) = text_of(browser, "#scores tbody td")
    assert cell.startswith(f"{mean:.1f} ±")


def test_what_has_diverged_is_said(rows, tmp_path, open_page):
    mine = [json.loads(json.dumps(row)) for row in rows["varying-k"]]
    for row in mine:
        if row["k"] == "1" and row["seed"] == 1:
            row |= dict.fromkeys(("return_mean", "normalized", "relative"))
            row["returns"], row["curve"] = [None] * 20, row["curve"][:1]
    browser = open_page(pages.write(mine, "lost", tmp_path / "page.html"))
    best = text_of(browser, "#scores tbody td")
    main = tables.tables(mine)[0]
    assert best == [row[1].replace(" (K", " K").rstrip(")") for row in main.rows]
    assert not any("K = 1" in cell.replace("K = 10", "") for cell in best)
    browser.execute_script("""const choose = document.getElementById("k");
        choose.value = "1"; choose.dispatchEvent(new Event("change"));""")
    assert text_of(browser, "#scores tbody td") == ["1 of 2 diverged"] * 3
    reached = browser.execute_script(
        """return document.querySelector('figure[aria-label^="Learners on"] svg')
        .textContent"""
    )
    assert "1 of 2 diverged" in reached
    assert drawn_without_numbers(browser) == []
    found = saved(browser, "Scores of all learners")
    assert [row[3:] for row in found[1:]] == [["1", "2", "", ""]] * 3


def test_where_all_have_diverged_nobody_is_the_best(rows, tmp_path, open_page):
    mine = [json.loads(json.dumps(row)) for row in rows["heterogeneous"]]
    for row in mine:
        if row["data"].endswith("hopper-heterogeneous-1"):
            row |= dict.fromkeys(("return_mean", "normalized", "relative"))
            row["returns"] = [None] * 20
    browser = open_page(pages.write(mine, "lost", tmp_path / "page.html"))
    bold = text_of(browser, "#scores td b")
    assert len(bold) == 14
    assert not any("diverged" in cell for cell in bold)
    assert drawn_without_numbers(browser) == []


def test_runs_that_were_not_evaluated(plain, tmp_path, open_page):
    nothing = {"return_mean": None, "return_std": None, "returns": [], "curve": []}
    rows = [plain[0] | nothing | {"maps": None}]
    browser = open_page(pages.write(rows, "quick", tmp_path / "page.html"))
    text = browser.execute_script("return document.body.innerText")
    assert "No run was evaluated: the preset has episodes = 0." in text
    assert "not evaluated" in browser.execute_script("return document.body.textContent")


def test_python_is_told_which_command_writes_it():
    with pytest.raises(UserError, match=r"got a benchmark; .*: manyhands report /"):
        write_report(RESULTS / "varying-k")


def test_short_names_only_where_they_tell_sets_apart():
    assert pages.short_names(["zoo:a", "my/b.npz"]) == ["a", "my/b.npz"]
    assert pages.short_names(["zoo:a", "fork:a"]) == ["zoo:a", "fork:a"]
