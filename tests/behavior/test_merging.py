"""Merging on tables of held-out log-probabilities made by hand."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from manyhands.behavior.merging import HALVES, SAME, Step, accepted, distances
from manyhands.behavior.merging import path as weighed_path

STEPS = 10  # held out of every trajectory


def table(codes, gaps, noise: float = 0.0, seed: int = 0) -> np.ndarray:
    """[M, K] sums: a trajectory has -1 nat a step under its own code, and `gaps[own,
    other]` nats a step less under another."""
    gaps = np.asarray(gaps, float)
    per_step = -1 - gaps[np.asarray(codes)]
    per_step += noise * np.random.default_rng(seed).normal(size=per_step.shape)
    return STEPS * per_step


def path(codes, held, counts) -> list[Step]:
    """With embeddings that say nothing: the costs alone decide."""
    return weighed_path(codes, held, counts, np.zeros((len(codes), 2)))


def counts(codes) -> np.ndarray:
    return np.full(len(codes), STEPS)


def recomputed(codes, held, counts, keep: int, drop: int) -> tuple[float, float]:
    """Cost of a merge and the held-out log-probability after it, one by one."""
    lost = concerned = total = 0.0
    for m, code in enumerate(codes):
        under = keep if code == drop else code
        total += held[m, under]
        if code == drop:
            lost += held[m, code] - held[m, under]
            concerned += counts[m]
    return lost / max(1, concerned), total / sum(counts)


def cheapest(codes, held, counts) -> float:
    used = set(codes.tolist())
    return min(
        recomputed(codes, held, counts, keep, drop)[0]
        for keep in used
        for drop in used - {keep}
    )


def test_a_merge_by_hand():
    """Codes 0 and 1 hold two trajectories each, of 2 and 3 held-out steps."""
    codes = np.array([0, 0, 1, 1])
    held = np.array([[-2.0, -4.0], [-3.0, -6.0], [-5.0, -4.0], [-6.5, -6.0]])
    (step,) = path(codes, held, np.array([2, 3, 2, 3]))
    # Given up for 0, code 1 loses 1 + 0.5 on its 5 steps; 0 for 1 would lose 2 + 3.
    assert (step.keep, step.drop, step.codes) == (0, 1, 1)
    assert step.cost == pytest.approx(1.5 / 5)
    assert step.heldout == pytest.approx(-(2 + 3 + 5 + 6.5) / 10)
    # The losses are 1 and 0.5: the deviation of their sum is sqrt(2) std, per step / 5.
    assert step.error == pytest.approx(2**0.5 * np.std([1, 0.5]) / 5)
    assert np.array_equal(codes, [0, 0, 1, 1])  # the argument is left alone


def test_a_false_division_merges_and_two_alike_but_distinct_codes_do_not():
    """Codes 1 and 2 are one behavior; 0 and 3 differ by 0.2 nats a step."""
    codes = np.repeat([0, 1, 2, 3], 25)
    gaps = [[0, 2, 2, 0.2], [2, 0, 0, 2], [2, 0, 0, 2], [0.2, 2, 2, 0]]
    held = table(codes, gaps, noise=0.01)
    steps = path(codes, held, counts(codes))
    assert {steps[0].keep, steps[0].drop} == {1, 2}
    assert abs(steps[0].cost) < 0.01
    assert {steps[1].keep, steps[1].drop} == {0, 3}
    assert steps[1].cost == pytest.approx(0.2, abs=0.01)
    assert steps[1].cost > SAME
    assert accepted(steps, at_most=4) == steps[:1]


def test_a_false_division_merges_although_its_codes_fit_what_they_hold():
    """Held-out steps know nothing of the division: noise of either sign."""
    random = np.random.default_rng(1)
    codes = random.integers(0, 6, size=120)
    held = table(codes, np.zeros((6, 6)), noise=0.1)
    steps = path(codes, held, counts(codes))
    assert len(accepted(steps, at_most=6)) == 5


def test_at_most_forces_merges_and_takes_the_cheapest_first():
    codes = np.repeat([0, 1, 2, 3], 10)
    gaps = 5.0 * (1 - np.eye(4))
    gaps[0, 1] = gaps[1, 0] = 1
    gaps[2, 3] = gaps[3, 2] = 2
    steps = path(codes, table(codes, gaps), counts(codes))
    assert accepted(steps, at_most=4) == []
    for most in (1, 2, 3):
        assert len(accepted(steps, most)) == 4 - most
    assert {steps[0].keep, steps[0].drop} == {0, 1}
    assert {steps[1].keep, steps[1].drop} == {2, 3}
    # At last 2, which stands for 3 too, goes onto 0: one half loses 5, the other,
    # 2 below its best already, loses 3.
    assert [step.cost for step in steps] == pytest.approx([1.0, 2.0, 4.0])


def test_accepted_forces_first_and_then_goes_on_while_it_is_free():
    def step(codes: int, cost: float) -> Step:
        return Step(0, 1, cost, 0.0, 1.0, cost, codes, 0.0)

    steps = [step(4, 0.9), step(3, 0.01), step(2, -0.02), step(1, 0.2)]
    assert len(accepted(steps, at_most=10)) == 0
    assert len(accepted(steps, at_most=5)) == 0
    assert len(accepted(steps, at_most=4)) == 3
    assert len(accepted(steps, at_most=1)) == 4
    assert accepted([], at_most=1) == []


def test_one_code_and_codes_without_held_out_steps():
    assert path(np.zeros(3, int), np.zeros((3, 5)), np.ones(3)) == []
    # Trajectories too short to hold anything out cost nothing to merge.
    codes = np.array([0, 1, 2])
    held = np.array([[-1.0, -9, -9], [-9, -1, -9], [0, 0, 0]])
    steps = path(codes, held, np.array([1, 1, 0]))
    assert steps[0].cost == 0
    assert 2 in (steps[0].keep, steps[0].drop)


@st.composite
def problems(draw):
    codes = draw(st.integers(1, 5))
    trajectories = draw(st.integers(1, 12))
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    return (
        random.integers(0, codes, size=trajectories),
        random.normal(size=(trajectories, codes)),
        random.integers(1, 5, size=trajectories),
    )


@given(problems())
@settings(deadline=None, max_examples=60)
def test_every_step_is_the_cheapest_and_has_the_numbers_of_a_recomputation(problem):
    codes, held, counts = problem
    steps = path(codes, held, counts)
    assert len(steps) == len(set(codes.tolist())) - 1
    codes = codes.copy()
    for left, step in zip(range(len(steps), 0, -1), steps):
        assert step.codes == left
        assert step.cost == pytest.approx(cheapest(codes, held, counts))
        cost, heldout = recomputed(codes, held, counts, step.keep, step.drop)
        assert step.cost == pytest.approx(cost)
        assert step.heldout == pytest.approx(heldout)
        codes[codes == step.drop] = step.keep


def clouds(centers, each: int, spread: float = 1.0) -> np.ndarray:
    random = np.random.default_rng(0)
    rows = np.repeat(np.asarray(centers, float), each, axis=0)
    return rows + spread * random.normal(size=rows.shape)


def members(codes) -> np.ndarray:
    return (np.asarray(codes) == np.unique(codes)[:, None]).astype(float)


def test_the_halves_of_one_cloud_have_the_distance_that_is_named():
    cloud = clouds([[0.0, 0.0, 0.0]], 20_000)
    halves = (cloud[:, 0] > 0).astype(int)
    found = distances(members(halves), cloud)
    assert found[0, 1] == found[1, 0] == pytest.approx(HALVES, rel=0.02)


def test_distances_are_in_units_of_the_scatter_on_the_line_between():
    # Three times as wide across the line, which is of no matter.
    cloud = clouds([[0.0, 0.0], [6.0, 0.0]], 20_000) * [1, 3]
    codes = np.repeat([0, 1], 20_000)
    assert distances(members(codes), cloud)[0, 1] == pytest.approx(6, rel=0.05)


def test_codes_with_one_trajectory_scatter_like_the_others():
    cloud = np.vstack([clouds([[0.0, 0.0]], 500), [[10.0, 0.0], [13.0, 0.0]]])
    codes = np.array([0] * 500 + [1, 2])
    found = distances(members(codes), cloud)
    assert found[1, 2] == pytest.approx(3, rel=0.1)
    alone = distances(members([0, 1]), np.array([[0.0, 0.0], [1.0, 0.0]]))
    assert alone[0, 1] > 100  # nothing scatters: whatever differs lies apart


def test_a_doubtful_cost_counts_where_embeddings_lie_apart_and_not_where_they_touch():
    codes = np.repeat([0, 1], 200)
    gap = 0.6 * SAME
    held = table(codes, [[0, gap], [gap, 0]])
    apart = clouds([[0.0, 0.0], [9.0, 0.0]], 200)
    (step,) = weighed_path(codes, held, counts(codes), apart)
    assert step.cost == pytest.approx(gap)
    assert step.evidence == pytest.approx(gap * (step.apart / HALVES) ** 2)
    assert accepted([step], at_most=2) == []
    cloud = clouds([[0.0, 0.0]], 400)
    cloud = cloud[np.argsort(cloud[:, 0])]  # cut in two halves
    (step,) = weighed_path(codes, held, counts(codes), cloud)
    assert accepted([step], at_most=2) == [step]
