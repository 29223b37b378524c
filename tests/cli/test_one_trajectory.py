"""A single trajectory: no figure of where it lies among others."""

from manyhands import load, make, save


def test_fit_and_report(cli, tmp_path):
    save(make("fork-1", 400)[:1], tmp_path / "one.npz")
    assert len(load(tmp_path / "one.npz")) == 1
    done = cli(*"fit one.npz --out run --k 1 --steps 20 --no-compare".split())
    assert done.returncode == 0, done.stderr
    assert "Warning" not in done.stderr
    drawn = [path.name for path in (tmp_path / "run" / "figures").iterdir()]
    assert drawn == ["training.png"]
    done = cli("report", "run")
    assert done.returncode == 0, done.stderr
    assert "Warning" not in done.stderr
