import numpy as np
import pytest

from manyhands import UserError, load, make, save
from manyhands.data import formats
from manyhands.datasets import MAKERS, usual_size


def test_made_data_sets_by_name():
    assert load("fork:fork-2").fingerprint == make("fork-2").fingerprint
    with pytest.raises(UserError, match="fork-9: expected a built-in data set: fork-1"):
        make("fork-9")
    with pytest.raises(UserError, match="takes no options"):
        load("fork:fork-2", clip=True)
    with pytest.raises(UserError, match="no such file; is fork:fork-2 meant?"):
        load("fork-2")
    with pytest.raises(UserError, match="transitions: expected at least 1, got 0"):
        make("fork-2", transitions=0)
    # NumPy's numbers are as good as Python's.
    same = make("fork-2", 200, seed=np.int64(3)).fingerprint
    assert same == make("fork-2", 200, seed=3).fingerprint
    with pytest.raises(UserError, match="seed: expected a number from 0 to 2.31 - 1"):
        make("fork-2", seed=-1)


def test_the_zoos_data_sets_by_name():
    data = make("hopper-medium-expert", transitions=40, seed=2)
    assert data.source_names == ("medium", "expert")
    assert data.name == "hopper-medium-expert"
    assert usual_size("hopper-medium-expert") == 2_000_000
    assert usual_size("walker2d-medium-replay") == 302_000
    assert len(MAKERS["zoo"].sizes) == 27
    with pytest.raises(UserError, match="hopper-heterogeneous-6: expected a built-in"):
        load("zoo:hopper-heterogeneous-6")
    with pytest.raises(UserError, match="fork-2: expected a built-in data set: hopper"):
        load("zoo:fork-2")


def test_unknown_options_formats_and_places(tmp_path, small):
    with pytest.raises(UserError, match="cilp: expected one of the options clip"):
        load("x.npz", cilp=True)
    with pytest.raises(UserError, match="expected a path or one of d4rl:.*got 'hdf:'"):
        load("hdf:x.npz")
    with pytest.raises(UserError, match="no such file"):
        load(tmp_path / "absent.npz")
    odd = tmp_path / "odd.bin"
    odd.write_bytes(b"")
    with pytest.raises(UserError, match=r"expected a file that ends in \.npz"):
        load(odd)
    with pytest.raises(UserError, match="LeRobot directory"):
        load(tmp_path)
    with pytest.raises(UserError, match="expected a name that ends in"):
        save(small, odd)


def test_a_path_with_a_colon_is_a_path(tmp_path, small, monkeypatch):
    monkeypatch.chdir(tmp_path)
    save(small, "npz:day1.npz")
    (tmp_path / "day1.npz").rename("run:one.npz")
    assert formats.parse("run:one.npz") == (None, "run:one.npz")
    assert load("run:one.npz").transitions == small.transitions


def test_an_archive_may_have_any_name(tmp_path, small):
    save(small, f"npz:{tmp_path / 'plain'}")
    assert load(f"npz:{tmp_path / 'plain'}").fingerprint == small.fingerprint
    assert [path.name for path in tmp_path.iterdir()] == ["plain"]


def test_npz_with_objects_is_refused_not_unpickled(tmp_path):
    path = tmp_path / "x.npz"
    np.savez(path, observations=np.array([{"a": 1}], dtype=object))
    with pytest.raises(UserError, match="NumPy archive without objects"):
        load(path)
