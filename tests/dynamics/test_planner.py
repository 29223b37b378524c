"""The planner where the best plan is known, and piece by piece."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from manyhands.dynamics import planner
from manyhands.dynamics.planner import Guides, Noise, PlanSettings
from manyhands.nn.distributions import TanhNormal
from manyhands.types import Box

BOX = Box(jnp.array([-1.0, -2.0]), jnp.array([1.0, 2.0]))
GOAL = jnp.array([0.9, -1.2])


def near_zero(who, uniform, s) -> TanhNormal:
    """A behavior that hardly acts, wider in its first variable."""
    del who, uniform
    log_std = jnp.log(jnp.array([1.0, 0.5]) * 0.01)
    mean = jnp.zeros((len(s), 2))
    return TanhNormal(
        mean, jnp.broadcast_to(log_std, mean.shape), jnp.zeros(2), BOX.high
    )


def moves(s, a):
    """Two models that agree: the action is the move, paid by how near the goal is."""
    following = s + a
    reward = -jnp.sum((following - GOAL) ** 2, axis=-1, keepdims=True)
    said = jnp.concatenate([reward, a], axis=-1)
    return jnp.stack([said, said])


def nothing(s, a):
    return jnp.zeros((2, len(s)))


WORLD = Guides(
    begin=lambda uniform: (None, None),
    propose=near_zero,
    predict=moves,
    value=nothing,
    first_value=lambda s, a: jnp.zeros(len(s)),
    ended=lambda s: jnp.zeros(len(s), bool),
)


def settings(**changes) -> PlanSettings:
    given = dict(trajectories=512, horizon=1, proposals=1, kappa=50.0, spread=1.0)
    return PlanSettings(**given | dict(threshold=1.0) | changes)


def planned(guides: Guides, how: PlanSettings, seed: int = 0):
    @jax.jit
    def go(key, how):
        noise = Noise.draw(key, how, 2)
        plan = planner.plan(jnp.zeros(2), noise, guides, how, BOX)
        return plan, planner.imagine(jnp.zeros(2), noise, guides, how), noise

    return go(jax.random.key(seed), how)


def test_it_finds_the_best_move():
    """One step, reward -|a - goal|^2: the best action is the goal, which the behavior
    itself would never take."""
    plan, imagined, _ = planned(WORLD, settings())
    np.testing.assert_allclose(plan.action, GOAL, atol=0.15)
    assert float(plan.survivors) == 1
    # With no preference it takes the mean of what is proposed.
    plan, imagined, _ = planned(WORLD, settings(kappa=0.0))
    np.testing.assert_allclose(plan.action, imagined.actions[0].mean(axis=0), atol=1e-5)
    np.testing.assert_allclose(plan.action, [0, 0], atol=0.1)


def test_values_choose_among_proposals_and_count_at_the_end():
    """Q_1 alone likes large first actions: so do trajectories; all critics count at the
    end."""

    def value(s, a):
        return jnp.stack([a[:, 0], 3 * s[:, 0]])

    guides = WORLD._replace(value=value, first_value=lambda s, a: a[:, 0])
    _, imagined, noise = planned(guides, settings(trajectories=64, proposals=8))
    drawn = np.tanh(np.asarray(noise.action[0]) * [1.0, 0.5]) * np.asarray(BOX.high)
    best = drawn[drawn[..., 0].argmax(axis=0), np.arange(64)]
    np.testing.assert_allclose(imagined.actions[0], best, atol=1e-5)
    last = np.tanh(np.asarray(noise.action[1]) * 0.01 * np.array([1.0, 0.5]))
    expected = -np.sum((best - np.asarray(GOAL)) ** 2, axis=1)
    expected += (last[..., 0].mean(axis=0) + 3 * best[:, 0]) / 2
    np.testing.assert_allclose(imagined.returns, expected, atol=1e-4)


def test_rewards_add_up_until_an_end_and_nothing_counts_after_it():
    guides = WORLD._replace(
        predict=lambda s, a: jnp.stack(
            [jnp.concatenate([jnp.ones((len(s), 1)), jnp.ones_like(a) * (1 + m)], 1)
             for m in (0.0, 0.5)]
        ),
        value=lambda s, a: jnp.full((2, len(s)), 100.0),
        ended=lambda s: s[:, 0] >= 3,
    )  # fmt: skip
    _, imagined, noise = planned(guides, settings(trajectories=4, horizon=4))
    steps = 1 + 0.5 * (np.asarray(noise.member[:-1]) >= 0.5)  # by the chosen member
    alive = np.concatenate([[True], np.cumsum(steps)[:-1] < 3])
    ended = np.cumsum(steps)[-1] >= 3
    assert ended
    assert not alive.all()
    np.testing.assert_allclose(imagined.rewards[:, 0], alive)
    np.testing.assert_allclose(imagined.returns, alive.sum())
    np.testing.assert_allclose(imagined.apart[:, 0], 0.5 * 2**0.5, rtol=1e-5)


def test_an_early_end_is_no_way_to_stay_unpruned():
    """Models disagree by 1, 2, 3, ... until an end, which is to the right of 0."""

    def torn(s, a):
        reward, change = jnp.ones((len(s), 1)), jnp.stack([a[:, 0], 1 + 0 * a[:, 0]], 1)
        said = jnp.concatenate([reward, change], axis=1)
        return jnp.stack([said, said.at[:, 0].add(1 + s[:, 1])])

    guides = WORLD._replace(predict=torn, ended=lambda s: s[:, 0] > 0)
    _, imagined, _ = planned(guides, settings(trajectories=50, horizon=4))
    right = np.cumsum(imagined.actions[..., 0], axis=0) > 0
    ends = np.where(right.any(axis=0), right.argmax(axis=0), 3)
    assert len(set(ends)) > 1
    expected = 1 + np.minimum(np.arange(4)[:, None], ends)
    np.testing.assert_allclose(imagined.apart, expected, rtol=1e-5)


def test_trajectories_that_models_disagree_on_are_pruned():
    """Good moves to the right are not trusted: the plan goes left."""

    def torn(s, a):
        right = (a[:, :1] > 0).astype(jnp.float32)
        said = jnp.concatenate([a[:, :1] * (2 * right - 0.5), a], axis=-1)
        return jnp.stack([said, said.at[:, 1:2].add(5 * right)])

    guides = WORLD._replace(predict=torn)
    plan, *_ = planned(guides, settings())
    assert float(plan.action[0]) < -0.7
    assert 0.4 < float(plan.survivors) < 0.6
    plan, *_ = planned(guides, settings(threshold=10.0))
    assert float(plan.action[0]) > 0.7


def test_where_too_few_survive_the_least_doubtful_are_kept():
    apart = jnp.asarray(np.arange(20.0))[None] + 1
    fine, keep = planner.prune(apart, 6.5)
    assert fine.sum() == keep.sum() == 6
    fine, keep = planner.prune(apart, 2.5)
    assert fine.sum() == 2
    assert np.flatnonzero(keep).tolist() == [0, 1, 2, 3]
    # By the sum over time; one bad moment is enough not to be fine.
    twice = jnp.stack([apart[0], apart[0][::-1] * 3])
    fine, keep = planner.prune(twice, 0.0)
    assert not fine.any()
    assert np.flatnonzero(keep).tolist() == [16, 17, 18, 19]


def test_exactly_a_fifth_is_enough():
    """20 of 100: as a mean in float32 that may come out below 0.2."""
    apart = jnp.asarray(np.r_[np.full(20, 0.9), np.full(80, 1.1)])[None]
    # What is not fine now disagrees less in all than what is.
    apart = jnp.concatenate([apart, jnp.where(apart < 1, 0.9, 0.0)])
    fine, keep = jax.jit(planner.prune)(apart, 1.0)
    assert int(fine.sum()) == 20
    np.testing.assert_array_equal(keep, fine)


@pytest.mark.parametrize("lost", [jnp.nan, jnp.inf])
def test_a_trajectory_that_lost_itself_does_not_take_the_others_with_it(lost):
    """Far beyond the data a model may say anything."""
    apart = jnp.asarray(np.arange(20.0))[None].at[0, 0].set(lost) + 1
    fine, keep = planner.prune(apart, 2.5)
    assert np.flatnonzero(fine).tolist() == [1]
    assert np.flatnonzero(keep).tolist() == [1, 2, 3, 4]
    _, keep = planner.prune(jnp.full((1, 20), lost), 2.5)
    assert keep.all()

    def torn(s, a):
        """To the right, the second of two steps leads nowhere."""
        nowhere = jnp.where(s[:, :1] > 0, lost, 0.0)
        said = jnp.concatenate([a[:, :1] + nowhere, a], axis=-1)
        return jnp.stack([said, said])

    guides = WORLD._replace(predict=torn)
    plan, imagined, _ = planned(guides, settings(horizon=2))
    assert not np.isfinite(imagined.returns).all()
    assert -1 <= float(plan.action[0]) < 0
    assert np.isfinite(plan.value)


def test_weights():
    returns, keep = jnp.array([1.0, 3.0, 99.0]), jnp.array([True, True, False])
    w = np.exp(0.5 * np.array([1.0, 3.0]))
    found = planner.weigh(returns, keep, 0.5)
    np.testing.assert_allclose(found, [*(w / w.sum()), 0], rtol=1e-5)
    # Very large returns do not overflow.
    assert np.isfinite(planner.weigh(1e30 * returns, keep, 10.0)).all()


def test_weights_of_the_best_behavior():
    """1 has the highest mean by weight, 0 the highest return, 2 no weight at all."""
    weights = jnp.float32([0.1, 0.3, 0.2, 0.4, 0.0])
    returns = jnp.float32([9.0, 1.0, 3.5, 3.0, 99.0])
    found = planner.of_the_best(weights, returns, jnp.int32([0, 0, 1, 1, 2]))
    np.testing.assert_allclose(found, [0, 0, 1 / 3, 2 / 3, 0], atol=1e-6)
    # Where nothing has a weight, nothing gets one.
    none = planner.of_the_best(0 * weights, returns, jnp.int32([0, 0, 1, 1, 2]))
    assert np.array_equal(none, np.zeros(5))


def test_between_two_behaviors_nothing_is_averaged():
    """One goes left, one right, both are paid alike; standing still costs."""

    def begin(uniform):
        side = jnp.int32(uniform < 0.5)
        return jnp.where(side, 0.5, -0.5), side

    def propose(who, uniform, s):
        mean = jnp.stack([who, 0 * who], axis=-1)
        return TanhNormal(mean, 0 * mean - 3, jnp.zeros(2), jnp.ones(2))

    def predict(s, a):
        said = jnp.concatenate([jnp.abs(a[:, :1]), a], axis=-1)
        return jnp.stack([said, said])

    guides = WORLD._replace(begin=begin, propose=propose, predict=predict)
    plan, imagined, _ = planned(guides, settings(kappa=1.0, spread=0.05))
    assert set(np.asarray(imagined.behaviors)) == {0, 1}
    assert abs(abs(float(plan.action[0])) - np.tanh(0.5)) < 0.02
    assert np.isclose(float(plan.value), np.tanh(0.5), atol=0.02)
    # As it would be by the mean of all:
    together = guides._replace(begin=lambda uniform: (begin(uniform)[0], None))
    plan, _, _ = planned(together, settings(kappa=1.0, spread=0.05))
    assert abs(float(plan.action[0])) < 0.1


def test_spread_keeps_relations():
    b = TanhNormal(jnp.zeros(2), jnp.log(jnp.array([0.2, 0.1])), jnp.zeros(2), BOX.high)
    wide = planner.widened(b, 0.6)
    np.testing.assert_allclose(jnp.exp(wide.log_std), [0.6, 0.3], rtol=1e-5)


@pytest.mark.parametrize("many", [1, 3])
def test_chosen_numbers_are_below_the_limit(many):
    uniform = jnp.array([0.0, 0.5, 0.99999997, 1.0])
    found = np.asarray(planner.chosen(uniform, many))
    assert found.min() == 0
    assert found.max() == many - 1
