"""`write_report`: one or several runs as one HTML page that needs nothing else."""

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from manyhands.data.trajectories import Trajectories
from manyhands.errors import UserError
from manyhands.files import atomic_file, check_inside, strict_json
from manyhands.report import behavior_figures, policy_figures
from manyhands.report.comparison import comparison, names
from manyhands.report.one_file import filled
from manyhands.report.payload import payload
from manyhands.report.saved_run import SavedRun, open_run, same_data
from manyhands.report.trajectory_map import SHOWN

SCRIPTS = ("map.js", "sections.js", "report.js")


def write_report(
    runs: str | Path | Sequence[str | Path],
    out: str | Path | None = None,
    data: Trajectories | None = None,
) -> Path:
    """Write one self-contained page about one run, or comparing several.

    Args:
        runs: directories that `fit` or `train` wrote.
        out: the file; if None and there is one run, report.html in its directory, with
            figures/*.png beside it where the run has not drawn them itself. Beside
            NAME.html they are in NAME-figures/, of several runs in a folder for each.
        data: what the runs were made from: adds the data card, actions, and what the
            behaviors say of single trajectories. Runs of the command line know where
            their data is.

    Returns:
        Where the page is.
    """
    paths = [Path(runs)] if isinstance(runs, str | Path) else [Path(r) for r in runs]
    if not paths:
        raise UserError("runs: expected at least one run directory, got none")
    own = out is None
    if out is None:
        if len(paths) > 1:
            raise UserError("out: expected a file for the page of several runs")
        out = paths[0] / "report.html"
    out = Path(out)
    if out.is_dir():
        raise UserError(f"{out}: expected a file to write to, got a directory")
    if data is not None and not any(same_data(path, data) for path in paths):
        raise UserError(
            f"{data.name}: expected the data set that the runs were made from, got "
            "another one (its fingerprint differs)"
        )
    saved = [open_run(path, _for(path, data)) for path in paths]
    page = html(saved)
    with atomic_file(out) as temporary:
        temporary.write_text(page, encoding="utf-8")
    if find_spec("matplotlib"):
        folder = out.with_name(f"{out.stem}-figures")
        for one, name in zip(saved, names(saved)):
            if not own:
                _draw(one, folder / name if len(saved) > 1 else folder)
            elif not (one.run.path / "figures").exists():
                check_inside(one.run.path, one.run.path / "figures")
                _draw(one, one.run.path / "figures")
    return out


def _draw(saved: SavedRun, folder: Path) -> None:
    if saved.trained:
        policy_figures.draw(saved.run, folder)
    elif saved.data is not None:
        behavior_figures.draw(saved.run, saved.data, folder)


def html(saved: list[SavedRun]) -> str:
    # All runs together may take as much room as two.
    each = min(SHOWN, 2 * SHOWN // len(saved))
    contents = [payload(one, each) for one in saved]
    for content, name in zip(contents, names(saved)):
        content["name"] = name
    whole: dict[str, Any] = {"runs": contents}
    if len(saved) > 1:
        whole["comparison"] = strict_json(comparison(saved))
    title = ", ".join(dict.fromkeys(one.config["data"]["name"] for one in saved))
    return filled(f"{title}: who did what", whole, SCRIPTS)


def _for(path: Path, data: Trajectories | None) -> Trajectories | None:
    return data if data is not None and same_data(path, data) else None
