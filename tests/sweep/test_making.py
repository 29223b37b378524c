"""The data sets of a benchmark, made by a process beside its fleets."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from manyhands import UserError, load
from manyhands.sweep import preset as presets
from manyhands.sweep.benchmark import benchmark
from manyhands.sweep.local import Local
from manyhands.sweep.making import Making, data_file
from manyhands.sweep.plan import Fleet

FLEET = Fleet(
    ("fork:fork-2", "fork:leap-2"), "bc", "bc", "default", (), (0,), 0, 0, 300
)


def test_it_waits_for_all_that_a_fleet_needs(tmp_path):
    (tmp_path / "mine.npz").write_bytes(b"somebody else's")
    fleet = replace(FLEET, data=(*FLEET.data, str(tmp_path / "mine.npz")))
    with Making(tmp_path, [fleet]) as making:
        making.wait(fleet)
        for data in FLEET.data:
            assert load(data_file(tmp_path, data)).transitions >= 300
    assert making.process
    assert making.process.returncode is not None
    with Making(tmp_path, [fleet]) as again:
        assert again.process is None  # nothing is left to be made
        again.wait(fleet)


def test_whoever_waits_is_told_when_there_will_be_no_more(tmp_path):
    large = replace(FLEET, data=("fork:fork-2",), transitions=5_000_000)
    with Making(tmp_path, [large]) as making, ThreadPoolExecutor(1) as aside:
        waiting = aside.submit(making.wait, large)
        with pytest.raises(TimeoutError):
            waiting.result(0.5)
        making.give_up()
        with pytest.raises(UserError, match="^fork:fork-2: could not be made"):
            waiting.result(60)
    # It is not to blame.
    assert not list((tmp_path / "data").glob("*.error"))


def test_one_that_is_killed_leaves_nothing_half_made_and_is_told_of(tmp_path):
    (tmp_path / "data").mkdir()
    left = tmp_path / "data" / ".fork-fork-2-x.partial.npz"
    left.write_bytes(b"half")
    with Making(tmp_path, [FLEET]) as making:
        assert making.process
        making.process.kill()
        with pytest.raises(UserError, match="^fork:fork-2: could not be made: "):
            making.wait(FLEET)
    assert not left.exists()
    assert not data_file(tmp_path, "fork:fork-2").exists()


def test_one_that_cannot_be_made_does_not_stop_the_others(tmp_path):
    """Nobody knows fork-9; it is the first."""
    fleets = [replace(FLEET, data=(data,)) for data in ("fork:fork-9", "fork:leap-2")]
    for _ in range(2):  # and once more
        with Making(tmp_path, fleets) as making:
            making.wait(fleets[1])
            with pytest.raises(UserError) as error:
                making.wait(fleets[0])
        assert str(error.value).startswith(
            "fork:fork-9: could not be made: fork-9: expected a built-in data set"
        )
        assert load(data_file(tmp_path, "fork:leap-2")).transitions >= 300
    left = sorted(path.name for path in (tmp_path / "data").iterdir())
    assert left == ["fork-fork-9.error", "fork-leap-2.npz", "log.txt"]


def test_what_killed_its_maker_comes_last(tmp_path):
    """As may be where memory is too small for it: those behind it are made first."""
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "fork-fork-2.error").touch()
    with Making(tmp_path, [FLEET]) as making:
        making.wait(FLEET)
    first, last = (data_file(tmp_path, data) for data in FLEET.data)
    assert first.stat().st_mtime_ns > last.stat().st_mtime_ns
    assert not list((tmp_path / "data").glob("*.error"))


def test_names_that_nobody_knows_are_refused_before_anything_is_written(tmp_path):
    content = {"data": ["fork:fork-2", "fork:fork-9"], "seeds": [0]}
    preset = presets.parse("mine", content | {"algo": [{"name": "bc"}]})
    with pytest.raises(UserError, match="fork-9: expected a built-in data set"):
        benchmark(preset, tmp_path / "out", Local())
    assert not (tmp_path / "out").exists()
