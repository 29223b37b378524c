"""The report's page in a real browser."""

import base64
import csv
import time

import numpy as np
import pytest
from report_pages import (
    NAMES,
    content_of,
    figures_are_explained,
    moved,
    pictures_come_out,
    read_json,
)

from manyhands import Behavior, write_report

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
    assert figures_are_explained(browser) >= 10
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
    pictures_come_out(browser)
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
    shown = content_of(tmp_path / "both.html")
    assert np.allclose(np.array(shown["comparison"]["agreement"]), 1)  # one fit
