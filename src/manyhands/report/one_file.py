"""A page with its style, its programs and its data, as one file of HTML."""

import json
import re
from importlib import resources
from typing import Any

from manyhands.version import __version__

SHARED = ("draw.js", "charts.js", "frame.js")


def filled(title: str, content: dict[str, Any], scripts: tuple[str, ...]) -> str:
    """
    Args:
        content: strict JSON, for the scripts to draw.
        scripts: of this kind of page; those that all share come before them.
    """
    folder = resources.files("manyhands.report") / "page"

    def text(name: str) -> str:
        return (folder / name).read_text(encoding="utf-8")

    whole = {"version": __version__, **content}
    # Nothing in the data can end the element that holds it.
    data = json.dumps(whole, allow_nan=False, separators=(",", ":"))
    data = data.replace("<", "\\u003c").replace("\u2028", "\\u2028")
    escaped = title.replace("&", "&amp;").replace("<", "&lt;")
    values = {
        "title": escaped,
        "style": text("report.css"),
        "script": "\n".join(text(name) for name in (*SHARED, *scripts)),
        "data": data,
    }
    # In one pass: what is filled in may hold any text.
    return re.sub(r"{{(\w+)}}", lambda found: values[found[1]], text("report.html"))
