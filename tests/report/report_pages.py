"""Runs as a page is asked for them, and what a page holds."""

import json
import shutil
from pathlib import Path
from typing import Any

# As bad as they may come: the page must show them, and no more.
NAMES = ("left & <b>fast</b>", "</script><script>throw Error('escaped')</script>")


def read_json(path: Path) -> Any:
    return json.loads(path.read_text())


def content_of(page: Path) -> dict[str, Any]:
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


def figures_are_explained(browser: Any) -> int:
    """And can be saved, and are named for those who do not see them. How many."""
    about = browser.execute_script(
        """return Array.from(document.querySelectorAll("figure"), (f) => [
            f.querySelector("figcaption").textContent.length,
            Array.from(f.querySelectorAll("[data-save]"), (b) => b.dataset.save),
            Array.from(f.querySelectorAll("svg:not(.inline)"))
                .every((s) => s.ariaLabel)])"""
    )
    for words, saves, named in about:
        assert words > 25
        assert saves == ["png", "csv"]
        assert named
    return len(about)


def pictures_come_out(browser: Any) -> None:
    """All of them: nothing may taint the canvas that they are drawn on."""
    sizes = browser.execute_async_script("""
        const tell = arguments[0], plots = document.querySelectorAll(".plot");
        Promise.all(Array.from(plots, (p) => picture(p))).then(
            (all) => tell(all.map((c) => c.toDataURL().length)),
            (e) => tell(String(e)));
    """)
    assert isinstance(sizes, list), sizes
    assert min(sizes) > 300
