"""The report: its numbers against their definitions, its page in a real browser."""

import base64
import csv
import json
import shutil
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from manyhands import Behavior, Trajectories, UserError, load, write_report
from manyhands.cli import main
from manyhands.report import trajectory_map
from manyhands.report.payload import payload
from manyhands.report.saved_run import open_run

NAMES = ["</script><script>throw Error('escaped')</script>", "left & <b>fast</b>"]


@pytest.fixture(scope="module")
def data(folder) -> Trajectories:
    return load(folder / "data.npz")


@pytest.fixture(scope="module")
def content(folder) -> dict[str, Any]:
    return payload(open_run(folder / "train"))


@pytest.fixture(scope="module")
def page(folder) -> Path:
    return write_report(folder / "train")


def floats(text: str) -> np.ndarray:
    return np.frombuffer(base64.b64decode(text), "<f4")


def read_json(path: Path) -> Any:
    return json.loads(path.read_text())


# What it says


def test_log_probabilities_and_divergences(folder, data, content):
    behavior, fit = Behavior.load(folder / "fit"), content["fit"]
    by_code = behavior.code_log_probs(data).astype(np.float64)
    sums = np.array(
        [by_code[data.trajectory == m].sum(axis=0) for m in range(len(data))]
    )
    shown = floats(fit["log_probs"]).reshape(len(data), behavior.k)
    np.testing.assert_allclose(shown, sums / data.lengths[:, None], rtol=1e-5)
    for row in fit["behaviors"]:
        mine = (behavior.codes == row["code"])[data.trajectory]
        losses = (by_code[mine, row["code"]][:, None] - by_code[mine]).mean(axis=0)
        losses[row["code"]] = np.inf
        assert row["nearest"]["code"] == losses.argmin()
        assert row["nearest"]["distance"] == pytest.approx(losses.min(), rel=1e-5)
        own = data.returns[behavior.codes == row["code"]]
        assert row["return_std"] == pytest.approx(own.std(), rel=1e-4)


def test_the_plane_is_that_of_the_largest_singular_values(folder, content):
    with np.load(folder / "train" / "embeddings.npz") as arrays:
        W, e_pi = arrays["W"].astype(np.float64), np.atleast_2d(arrays["e_pi"])
    _, sizes, axes = np.linalg.svd(W - W.mean(axis=0), full_matrices=False)
    expected, places = (W - W.mean(axis=0)) @ axes[:2].T, content["fit"]["places"]
    found = floats(places["xy"]).reshape(-1, 2)
    np.testing.assert_allclose(np.abs(found), np.abs(expected), atol=1e-4)
    assert places["variance"] == pytest.approx(
        (sizes[:2] ** 2).sum() / (sizes**2).sum()
    )
    policy = (e_pi - W.mean(axis=0)) @ axes[:2].T
    np.testing.assert_allclose(np.abs(places["policy"]), np.abs(policy), atol=1e-4)


def test_actions_and_rewards_over_time(data, content):
    time_, at = content["fit"]["over_time"], 0
    actions = np.frombuffer(base64.b64decode(time_["actions"]), np.uint8)
    actions = actions.reshape(-1, data.action_size) / 255 * 2 - 1
    reward = np.frombuffer(base64.b64decode(time_["reward"]), np.uint8) / 255
    width = time_["reward_high"] - time_["reward_low"]
    for m, points in enumerate(time_["points"]):
        assert points == min(60, data.lengths[m])
        rows = slice(data.offsets[m], data.offsets[m + 1])
        mine = slice(at, at + points)
        np.testing.assert_allclose(actions[mine], data.actions[rows], atol=1 / 255)
        so_far = time_["reward_low"] + width * reward[mine]
        expected = np.cumsum(data.rewards[rows])
        np.testing.assert_allclose(so_far, expected, atol=width / 255)
        at += points
    assert at == data.transitions


def test_histograms_are_shares(data, content):
    fit = content["fit"]
    for code, shares in fit["histograms"]["by_code"].items():
        mine = np.isin(data.trajectory, np.flatnonzero(_codes(fit) == int(code)))
        for j, row in enumerate(shares):
            expected = np.histogram(data.actions[mine, j], 24, (-1, 1))[0] / mine.sum()
            np.testing.assert_allclose(row, expected, atol=0.005)


def _codes(fit: dict[str, Any]) -> np.ndarray:
    return np.array(fit["shown"]["code"])


def test_confusion_counts_every_trajectory(data, content):
    found = content["fit"]["confusion"]
    assert found["sources"] == NAMES
    for i, source in enumerate(found["sources"]):
        of_source = data.sources == data.source_names.index(source)
        for j, code in enumerate(found["codes"]):
            both = of_source & (_codes(content["fit"]) == code)
            assert found["counts"][i][j] == both.sum()


def test_curves_are_the_metrics_of_every_replica(folder, content):
    lines = (folder / "train" / "metrics.jsonl").read_text().splitlines()
    rows = [json.loads(line) for line in lines]
    curve = content["policy"]["curves"]["evaluation/return_mean"]
    for replica in (0, 1):
        for step, value in zip(curve["steps"], curve["values"][replica]):
            (logged,) = (
                row["evaluation/return_mean"]
                for row in rows
                if (row["step"], row["replica"]) == (step, replica)
                and "evaluation/return_mean" in row
            )
            assert value == pytest.approx(logged, rel=1e-4)
    assert content["policy"]["groups"] == [{"label": "lbrac_v", "replicas": [0, 1]}]


def test_a_sample_has_some_of_every_behavior():
    codes = np.repeat([0, 1, 2], [49_000, 990, 10])
    shown = trajectory_map.sample(codes, np.full(50_000, 5))
    assert len(shown) == 2000
    assert len(np.unique(shown)) == 2000
    assert (codes[shown] == 2).sum() == 10
    assert (codes[shown] == 1).sum() >= 20
    everyone = trajectory_map.sample(codes[:1000], np.full(1000, 5))
    assert np.array_equal(everyone, np.arange(1000))
    # Long ones: fewer, so that looking at them does not take minutes.
    assert len(trajectory_map.sample(codes, np.full(50_000, 1000))) == 1000


def test_two_thousand_long_trajectories_are_small(content):
    lengths = np.full(2000, 200)
    many = Trajectories.from_arrays(
        observations=np.zeros((lengths.sum(), 1)),
        actions=np.random.default_rng(0).uniform(-1, 1, (lengths.sum(), 8)),
        rewards=np.ones(lengths.sum()),
        terminals=np.zeros(lengths.sum()),
        trajectory=np.repeat(np.arange(2000), lengths),
    )
    found = trajectory_map.over_time(many)
    size = len(found["actions"]) + len(found["reward"])
    assert size < 2.2e6  # of the five million bytes that a page may have
    each = len(json.dumps(content["fit"]["shown"])) / len(_codes(content["fit"]))
    assert 2000 * each < 0.5e6


# The command


def run(capsys, *words: Any) -> tuple[int, str, str]:
    code = main.run(["report", *map(str, words)])
    printed = capsys.readouterr()
    return code, printed.out, printed.err


def test_the_command_finds_the_data_by_itself(folder, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # the run remembers where its data is, from anywhere
    code, out, _ = run(capsys, folder / "fit", "--out", "page.html")
    assert (code, out[:16]) == (0, "wrote page.html ")
    assert "Nothing to remark" in Path("page.html").read_text()
    shown = _content(tmp_path / "page.html")["runs"][0]
    assert shown["card"]["trajectories"] == shown["summary"]["data"]["trajectories"]
    assert shown["summary"] == read_json(folder / "fit" / "summary.json")


def _content(page: Path) -> dict[str, Any]:
    text = page.read_text().partition('id="data">')[2].partition("</script>")[0]
    return json.loads(text)


def moved(folder: Path, name: str, to: Path) -> Path:
    """A run that has lost what it was made from."""
    pages = shutil.ignore_patterns("report.html", "figures")
    shutil.copytree(folder / name, to / name, ignore=pages)
    config = read_json(to / name / "config.json")
    for key in ("loaded_from", "behavior_run"):
        config.pop(key, None)
    (to / name / "config.json").write_text(json.dumps(config))
    return to / name


ERRORS = {
    "absent": "absent/config.json: no such file; expected a run directory",
    "unfinished": "unfinished: this run is not finished; repeat its command",
    "fit train": "out: expected a file for the page of several runs",
    "fit --out fit": "fit: expected a file to write to, got a directory",
    "fit --data fork:fork-1": "fork-1: expected the data set that the runs were made",
}


def test_pictures_lie_beside_the_page(folder, page, tmp_path):
    (drawn,) = (folder / "train" / "figures").iterdir()
    assert drawn.name == "returns.png"
    assert drawn.read_bytes()[:4] == b"\x89PNG"
    assert page.parent == drawn.parents[1]
    alone = shutil.copytree(folder / "fit", tmp_path / "fit")
    write_report(alone, tmp_path / "elsewhere.html")
    assert not (alone / "figures").exists()  # a run is left alone
    write_report(alone)
    assert {path.name for path in (alone / "figures").iterdir()} == {
        "embeddings.png",
        "training.png",
    }


@pytest.mark.parametrize("words", ERRORS)
def test_errors_are_one_line(folder, capsys, tmp_path, monkeypatch, words):
    monkeypatch.chdir(tmp_path)
    for name in ("fit", "train"):
        moved(folder, name, tmp_path)
    (tmp_path / "unfinished").mkdir()
    shutil.copy("fit/config.json", "unfinished")
    code, out, err = run(capsys, *words.split())
    assert (code, out) == (1, "")
    assert err.startswith(f"error: {ERRORS[words]}")
    assert err.count("\n") == 1
    assert not list(tmp_path.rglob("*.html"))


def test_no_run_at_all():
    with pytest.raises(UserError, match="runs: expected at least one run directory"):
        write_report([])


def test_fitting_hands_its_metrics_on(folder, scalars):
    lines = (folder / "fit" / "metrics.jsonl").read_text().splitlines()
    logged = [(row["step"], row["heldout_log_prob"]) for row in map(json.loads, lines)]
    found = scalars(folder / "fit" / "tensorboard" / "replica-0")
    held = [(step, value) for tag, step, value in found if tag == "heldout_log_prob"]
    np.testing.assert_allclose(held, logged, rtol=1e-6)


# In a browser

PLACES = """
const map = page.maps[0], box = map.canvas.getBoundingClientRect();
const places = map.shown.code.map((_, m) => map.place(m));
return places.map(([x, y]) => [x + box.left, y + box.top]);
"""


def fixed(value: float, digits: int = 3) -> str:
    return f"{value:.{digits}f}".replace("-", "\N{MINUS SIGN}")


def numbers(browser) -> dict[str, str]:
    script = """const nodes = document.querySelectorAll("[data-number]");
        return Object.fromEntries(
            Array.from(nodes, (e) => [e.dataset.number, e.textContent]));"""
    return browser.execute_script(script)


def test_the_numbers_are_those_of_the_summary(folder, page, open_page):
    summary = read_json(folder / "train" / "summary.json")
    about = summary["behavior"]
    assert numbers(open_page(page)) == {
        "data.trajectories": f"{summary['data']['trajectories']:,}",
        "data.transitions": f"{summary['data']['transitions']:,}",
        "behavior.codes_used": str(about["codes_used"]),
        "behavior.heldout_log_prob": fixed(about["heldout_log_prob"]),
        "behavior.single_gaussian_heldout_log_prob": fixed(
            about["single_gaussian_heldout_log_prob"]
        ),
        "behavior.ari": fixed(about["ari"]),
        "policy.return_mean": fixed(summary["policy"]["return_mean"], 2),
    }


def test_returns_while_learning_end_with_those_of_the_summary(folder, page, open_page):
    rows = read_json(folder / "train" / "summary.json")["replicas"]
    curve = open_page(page).execute_script("return returnsCurve(DATA.runs[0])")
    assert curve["steps"][-1] == 20
    last = [values[-1] for values in curve["values"]]
    assert last == pytest.approx([row["return_mean"] for row in rows])


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_it_fits_the_screen_and_every_figure_is_explained(
    page, open_page, width, scheme
):
    browser = open_page(page, width, scheme)
    wide, seen = browser.execute_script(
        "const e = document.documentElement; return [e.scrollWidth, e.clientWidth]"
    )
    assert wide == seen
    assert 0 <= width - seen < 20  # but for a scroll bar
    about = browser.execute_script(
        """return Array.from(document.querySelectorAll("figure"), (f) => [
            f.querySelector("figcaption").textContent.length,
            Array.from(f.querySelectorAll("[data-save]"), (b) => b.dataset.save),
            Array.from(f.querySelectorAll("svg:not(.inline)"))
                .every((s) => s.ariaLabel)])"""
    )
    assert len(about) >= 10
    for words, saves, named in about:
        assert words > 40
        assert saves == ["png", "csv"]
        assert named
    sections = browser.execute_script(
        'return Array.from(document.querySelectorAll("h2"), (h) => h.textContent)'
    )
    assert sections == [
        "The data",
        "The behaviors",
        "The map",
        "How sure we are",
        "Known sources",
        "The policy",
        "The run",
    ]
    text = browser.execute_script("return document.body.innerText")
    assert not {"NaN", "undefined", "[object Object]"} & set(text.split())
    assert all(name in text for name in NAMES)


def test_the_map_answers_a_click(folder, page, open_page, data):
    from selenium.webdriver import ActionChains

    browser = open_page(page)
    canvas = browser.find_element("id", "map-canvas")
    there = "arguments[0].scrollIntoView({block: 'center', behavior: 'instant'})"
    browser.execute_script(there, canvas)
    places = np.array(browser.execute_script(PLACES))
    # One that has no other near it.
    apart = np.linalg.norm(places[:, None] - places[None], axis=2)
    m = int((apart + 1e9 * np.eye(len(places))).min(axis=1).argmax())
    actions = ActionChains(browser)
    actions.w3c_actions.pointer_action.move_to_location(*map(int, places[m]))
    actions.perform()
    tip = browser.find_element("css selector", ".tip").text
    assert tip.startswith(f"trajectory {m}\nbehavior ")
    actions.w3c_actions.pointer_action.click()
    actions.perform()
    shown = browser.find_element("id", "detail").text
    assert shown.startswith(f"Trajectory {m}\n")
    assert f"{data.lengths[m]} steps" in shown
    assert f"{float(f'{data.returns[m]:.4g}'):g}" in shown
    behavior = Behavior.load(folder / "fit")
    one = data[[m]]
    for value in behavior.code_log_probs(one).mean(axis=0):
        assert fixed(value) in shown
    for part in ("reward so far", "action 0", "action 1"):
        assert part in shown


def test_a_map_of_some_says_so(folder, open_page, tmp_path, monkeypatch, data):
    monkeypatch.setattr("manyhands.report.html_page.SHOWN", 10)
    browser = open_page(write_report(folder / "train", tmp_path / "some.html"))
    caption = browser.find_element("css selector", "#map figcaption").text
    assert f"10 of {len(data)} trajectories are shown, drawn by chance" in caption
    assert browser.execute_script("return page.maps[0].many") == 10


def test_the_map_by_keyboard(page, open_page):
    from selenium.webdriver import Keys

    browser = open_page(page)
    canvas = browser.find_element("id", "map-canvas")
    canvas.send_keys(Keys.ARROW_RIGHT, Keys.ENTER)
    assert browser.find_element("id", "picked").text == "Trajectory 0"
    places = np.array(browser.execute_script(PLACES))
    way = Keys.ARROW_LEFT if places[0, 0] > places[:, 0].mean() else Keys.ARROW_RIGHT
    canvas.send_keys(way, Keys.ENTER)
    m = int(browser.find_element("id", "picked").text.split()[1])
    right = places[m, 0] > places[0, 0]
    assert m != 0
    assert right == (way == Keys.ARROW_RIGHT)


def test_colors_can_be_switched(page, open_page):
    browser = open_page(page)

    def colors() -> tuple[str, str]:
        picture = browser.execute_script("return page.maps[0].canvas.toDataURL()")
        return picture, browser.find_element("css selector", ".legend").text

    seen = [colors()]
    for value in ("return", "source", "probability"):
        choice = browser.find_element("css selector", f'input[value="{value}"]')
        browser.execute_script("arguments[0].click()", choice)
        seen.append(colors())
    assert len({picture for picture, _ in seen}) == 4
    assert all(name in seen[2][1] for name in NAMES)
    browser.find_element("id", "theme").click()
    theme = browser.execute_script("return document.documentElement.dataset.theme")
    assert theme == "dark"
    assert colors()[0] not in {picture for picture, _ in seen}


def test_figures_can_be_saved(page, open_page, tmp_path, data):
    browser = open_page(page)
    browser.execute_cdp_cmd(
        "Browser.setDownloadBehavior",
        {"behavior": "allow", "downloadPath": str(tmp_path)},
    )
    for kind in ("csv", "png"):
        button = f"#map [data-save={kind}]"
        browser.execute_script(f"document.querySelector('{button}').click()")
        path = tmp_path / f"map-of-trajectories.{kind}"
        for _ in range(100):
            if path.exists():
                break
            time.sleep(0.05)
    with (tmp_path / "map-of-trajectories.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    found = np.array([float(row["return"]) for row in rows])
    np.testing.assert_allclose(found, data.returns, rtol=1e-6)
    assert {row["source"] for row in rows} == set(NAMES)
    assert (tmp_path / "map-of-trajectories.png").read_bytes()[:4] == b"\x89PNG"
    # Every picture comes out: nothing in it may taint the canvas it is drawn on.
    sizes = browser.execute_async_script("""
        const tell = arguments[0], plots = document.querySelectorAll(".plot");
        Promise.all(Array.from(plots, (p) => picture(p))).then(
            (all) => tell(all.map((c) => c.toDataURL().length)),
            (e) => tell(String(e)));
    """)
    assert isinstance(sizes, list), sizes
    assert min(sizes) > 300
    # Tables come out, too: as many words are drawn as there are.
    words, drawn = browser.execute_script("""
        const plot = document.querySelector("#behaviors .plot"), pen = { drawn: [] };
        pen.fillText = (word, x, y) => pen.drawn.push(word);
        writeWords(pen, plot);
        return [plot.innerText, pen.drawn];
    """)
    assert drawn == words.split()
    assert "nearest" in drawn


def test_on_paper(page, open_page):
    browser = open_page(page, scheme="dark")
    answer = browser.execute_cdp_cmd("Page.printToPDF", {"printBackground": True})
    printed = base64.b64decode(answer["data"])
    assert printed[:4] == b"%PDF"
    assert 2 <= printed.count(b"/Type /Page\n") <= 8
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    shape = "const c = page.maps[0].canvas; return [%s]"
    drawn = browser.execute_script(shape % "c.width, c.height")
    shown = browser.execute_script(shape % "c.clientWidth, c.clientHeight")
    assert shown[0] / shown[1] == pytest.approx(drawn[0] / drawn[1], rel=0.02)
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})


def test_what_is_missing_is_said(folder, open_page, tmp_path):
    alone = write_report(moved(folder, "fit", tmp_path))
    text = open_page(alone).execute_script("return document.body.innerText")
    assert text.count("The data set was not given. Give it: manyhands report RUN") == 3
    assert "learnt no policy: manyhands train DATA --behavior RUN" in text
    map_alone = write_report(moved(folder, "train", tmp_path))
    text = open_page(map_alone).execute_script("return document.body.innerText")
    assert "began from behaviors that were given to it" in text


def test_several_runs_are_compared(folder, open_page, tmp_path):
    runs = [folder / "fit", folder / "train"]
    browser = open_page(write_report(runs, tmp_path / "both.html"))
    text = browser.execute_script("return document.body.innerText")
    assert "2 runs: fit, train." in text
    cells = browser.find_elements("css selector", "#comparison tbody tr")
    assert [row.text.split()[0] for row in cells] == ["fit", "train"]
    assert "policy.return_mean" not in numbers(browser)
    browser.execute_script("""const choose = document.getElementById("which");
        choose.value = "1"; choose.dispatchEvent(new Event("change"));""")
    summary = read_json(folder / "train" / "summary.json")
    expected = fixed(summary["policy"]["return_mean"], 2)
    assert numbers(browser)["policy.return_mean"] == expected
    shown = _content(tmp_path / "both.html")
    assert np.allclose(np.array(shown["comparison"]["agreement"]), 1)  # one fit
