"""Tiny runs to report on, and a browser to look at their pages with."""

import shutil
import struct
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from report_pages import NAMES

from manyhands import Trajectories, load, make, save, write_report
from manyhands.cli import main

# Not merged, so that such a short fit finds several behaviors.
FIT = [
    *"--k 3 --steps 100 --policy-width 32 --policy-rate 3e-3".split(),
    *"--merge False --no-figures".split(),
]
TRAIN = "--steps 20 --warm-up 5 --critic-width 16 --episodes 2 --evaluations 2".split()


@pytest.fixture(scope="session")
def folder(tmp_path_factory) -> Path:
    """data.npz; `fit`, one replica; `train`, two seeds, begun from it."""
    here = tmp_path_factory.mktemp("report")
    save(replace(make("fork-2", 800), source_names=NAMES), here / "data.npz")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(here)
        for words in (
            ["fit", "data.npz", "--out", "fit", *FIT, "--log", "tensorboard"],
            "train data.npz --out train --behavior fit --seeds 0 1".split() + TRAIN,
        ):
            assert main.run(words) == 0, words
    return here


@pytest.fixture(scope="session")
def data(folder) -> Trajectories:
    return load(folder / "data.npz")


@pytest.fixture(scope="session")
def page(folder) -> Path:
    return write_report(folder / "train")


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """A real one, without a window; tests skip where it is not installed."""
    webdriver = pytest.importorskip("selenium.webdriver")
    program = shutil.which("chromium") or shutil.which("google-chrome")
    driver = shutil.which("chromedriver")
    if program is None or driver is None:
        pytest.skip("no chromium and chromedriver: apt-get install chromium-driver")
    options = webdriver.ChromeOptions()
    options.binary_location = program
    for word in (
        "headless=new",
        "no-sandbox",
        "disable-gpu",
        "disable-dev-shm-usage",
        "disable-background-networking",
        "disable-component-update",
        "disable-sync",
        "no-first-run",
    ):
        options.add_argument(f"--{word}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    service = webdriver.ChromeService(driver)
    chrome = webdriver.Chrome(options=options, service=service)
    yield chrome
    chrome.quit()


@pytest.fixture
def open_page(browser) -> Iterator[Callable[..., Any]]:
    """`open_page(path, width)` shows a page from disk; no console message is borne."""

    def show(path: Path, width: int = 1280, scheme: str = "light") -> Any:
        size = dict(width=width, height=900, deviceScaleFactor=1, mobile=width < 600)
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        wish = {"name": "prefers-color-scheme", "value": scheme}
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [wish]})
        browser.get(path.resolve().as_uri())
        return browser

    yield show
    assert browser.get_log("browser") == []


@pytest.fixture
def scalars() -> Callable[[Path], list[tuple[str, int, float]]]:
    """What a folder of TensorBoard's holds, record by record."""
    event = pytest.importorskip("tensorboardX.proto.event_pb2").Event

    def read(folder: Path) -> list[tuple[str, int, float]]:
        found = []
        for path in folder.iterdir():
            content, at = path.read_bytes(), 0
            while at < len(content):
                (size,) = struct.unpack_from("<Q", content, at)
                record = event.FromString(content[at + 12 : at + 12 + size])
                values = record.summary.value
                found += [(v.tag, record.step, v.simple_value) for v in values]
                at += size + 16  # length, its checksum, and the record's
        return found

    return read
