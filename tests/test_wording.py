from manyhands.wording import counted


def test_one_and_several():
    assert counted(1, "trajectory") == "1 trajectory"
    assert counted(2000, "trajectory") == "2,000 trajectories"
    assert counted(0, "data set") == "0 data sets"
    assert counted(1, "run") == "1 run"
