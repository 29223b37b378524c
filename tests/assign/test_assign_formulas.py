"""Formulas of the assigners against slow, independent implementations."""

import itertools

import numpy as np
import pytest
from scipy.sparse import csr_array

from manyhands.assign import kinematics, linking
from manyhands.assign.clustering import kmeans, polish
from manyhands.assign.hidden_contexts import shapes
from manyhands.assign.inputs import prepare
from manyhands.assign.modularity import Graph, anneal, louvain, single_moves
from manyhands.assign.pooled import fit_policy
from manyhands.assign.step_graph import nearest, scaled_cloud
from manyhands.assign.whiten import block_means, context_means, fit_projection, project


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)


def random_graph(rng, n: int) -> np.ndarray:
    weights = rng.random((n, n)) * (rng.random((n, n)) < 0.6)
    return np.triu(weights, 1) + np.triu(weights, 1).T


def slow_quality(weights, labels, resolution=1.0) -> float:
    """Newman's double sum over pairs of nodes."""
    total = weights.sum()
    degree = weights.sum(1)
    result = 0.0
    for i, j in itertools.product(range(len(labels)), repeat=2):
        if labels[i] == labels[j]:
            chance = resolution * degree[i] * degree[j] / total
            result += (weights[i, j] - chance) / total
    return result


@pytest.mark.parametrize("resolution", [1.0, 0.25])
def test_quality_is_newmans_modularity(rng, resolution):
    weights = random_graph(rng, 9)
    labels = rng.integers(3, size=9)
    graph = Graph.of(csr_array(weights), resolution)
    assert np.isclose(graph.quality(labels), slow_quality(weights, labels, resolution))
    # Joining nodes that share a label changes no quality.
    joined = graph.joined(labels)
    assert np.isclose(joined.quality(np.arange(len(joined))), graph.quality(labels))


def test_annealing_and_moves_find_the_best_of_all_cuts(rng):
    weights = random_graph(rng, 8)
    graph = Graph.of(csr_array(weights))
    best = max(
        slow_quality(weights, np.array(labels))
        for labels in itertools.product(range(3), repeat=8)
        if len(set(labels)) == 3
    )
    found = anneal(graph, 3, rng)
    assert np.isclose(graph.quality(found), best)
    start = rng.permutation([0, 0, 0, 1, 1, 1, 2, 2])
    moved = single_moves(graph, start, rng)
    assert graph.quality(moved) >= graph.quality(start)
    assert len(set(moved)) == 3
    for i, k in itertools.product(range(8), range(3)):
        other = moved.copy()
        other[i] = k
        if len(set(other)) == 3:
            assert graph.quality(other) <= graph.quality(moved) + 1e-9


def test_signed_weights_repel(rng):
    weights = np.ones((4, 4)) - np.eye(4)
    weights[:2, 2:] = weights[2:, :2] = -3.0
    graph = Graph(csr_array(weights / np.abs(weights).sum()), np.full(4, 0.25))
    assert set(map(tuple, [anneal(graph, 2, rng)])) <= {(0, 0, 1, 1), (1, 1, 0, 0)}


def test_louvain_finds_two_cliques(rng):
    weights = np.kron(np.eye(2), np.ones((5, 5))) - np.eye(10)
    weights[0, 5] = weights[5, 0] = 1
    labels = louvain(Graph.of(csr_array(weights)), rng)
    assert len(set(labels[:5])) == len(set(labels[5:])) == 1
    assert labels[0] != labels[5]


def test_hungarian_assignment_is_the_cheapest_of_all(rng):
    cost = rng.random((5, 3))
    members = [np.array([0, 2]), np.array([1, 3, 4])]

    def apart(codes):
        return all(len(set(codes[m])) == len(m) for m in members)

    cheapest = min(
        sum(cost[i, code] for i, code in enumerate(codes))
        for codes in itertools.product(range(3), repeat=5)
        if apart(np.array(codes))
    )
    found = linking.assign_apart(cost, members)
    assert apart(found)
    assert np.isclose(cost[np.arange(5), found].sum(), cheapest)


def test_a_crowded_context_fills_every_code_evenly(rng):
    found = linking.assign_apart(rng.random((7, 3)), [np.arange(7)])
    assert sorted(np.bincount(found))[-1] <= 3


def test_nearest_points_are_of_other_trajectories(rng):
    raw = rng.normal(size=(30, 4))
    owner = np.repeat(np.arange(6), 5)
    cloud = scaled_cloud(raw, owner)
    found = nearest(cloud, cloud.points, owner, 3)
    for i, point in enumerate(cloud.points):
        far = np.linalg.norm(cloud.points - point, axis=1)
        far[owner == owner[i]] = np.inf
        assert set(found[i]) == set(np.argsort(far)[:3])


def test_cloud_scales_axes_by_the_fourth_root(rng):
    raw = rng.normal(size=(4000, 2)) * [4.0, 1.0]
    points = scaled_cloud(raw, np.zeros(4000, int)).points
    # Deviations 4 and 1: eigenvalues 16 and 1, divided by 2 and 1.
    assert np.allclose(sorted(points.std(0)), [1.0, 2.0], rtol=0.05)


def slow_whitening(blocks, q, context):
    """The docstring of `fit_projection`, line by line, in float64."""
    n, b, f = blocks.shape
    means = blocks.mean(1)
    centered = np.empty((n, f))
    noise = []
    for c in np.unique(context):
        inside = context == c
        centered[inside] = means[inside] - means[inside].mean(0)
        own = blocks[inside] - blocks[inside].mean(0)
        noise += list((own - own.mean(1, keepdims=True)) / np.sqrt(b * (b - 1)))
    noise = np.concatenate(noise)
    scale = 1 / np.sqrt((noise**2).sum(0) / n + 0.05 * centered.var(0))
    total = (centered * scale).T @ (centered * scale) / n
    within = (noise * scale).T @ (noise * scale) / n
    p = np.linalg.eigh(total)[1]
    total, within = p.T @ total @ p, p.T @ within @ p
    within = 0.9 * within + 0.1 * np.trace(within) / f * np.eye(f)
    within += 0.02 * np.diag(np.diag(total))
    root = np.linalg.inv(np.linalg.cholesky(within))
    directions = np.linalg.eigh(root @ total @ root.T)[1][:, ::-1][:, :q]
    return (centered * scale) @ p @ root.T @ directions


def test_whitening_is_its_formula(rng):
    blocks = rng.normal(size=(40, 4, 6)) + 2 * rng.normal(size=(40, 1, 6))
    context = np.arange(40) % 2
    counts = np.full((40, 4), 5)
    projection = fit_projection(blocks.astype(np.float32), counts, 3, context)
    found = project(projection, blocks.mean(1), context)
    expected = slow_whitening(blocks, 3, context)
    signs = np.sign((found * expected).sum(0))
    assert np.allclose(found * signs, expected, atol=1e-3)


def test_group_noise_hides_what_differs_inside_groups(rng):
    group = np.repeat(np.arange(20), 5)
    loud = rng.normal(size=(100, 1)) * 10  # differs inside groups
    quiet = np.repeat(rng.normal(size=(20, 1)), 5, axis=0)  # differs between them
    means = np.concatenate([loud, quiet + 0.1 * rng.normal(size=(100, 1))], axis=1)
    blocks = np.repeat(means[:, None], 4, axis=1).astype(np.float32)
    projection = fit_projection(blocks, np.full((100, 4), 3), 1, None, group)
    found = project(projection, means, None)[:, 0]
    assert abs(np.corrcoef(found, quiet[:, 0])[0, 1]) > 0.95


def test_block_means_of_uneven_trajectories(rng):
    lengths = [1, 2, 5, 9]
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    a = rng.normal(size=(17, 2))
    inputs = prepare(rng.normal(size=(17, 3)), a, offsets)
    means, counts = block_means(inputs, lambda part: part.actions)
    assert counts.sum(1).tolist() == lengths
    whole = (means * counts[:, :, None]).sum(1) / counts.sum(1, keepdims=True)
    for m in range(4):
        own = inputs.actions[offsets[m] : offsets[m + 1]]
        assert np.allclose(whole[m], own.mean(0), atol=1e-5)
    assert counts[2].tolist() == [1, 1, 1, 2]
    assert np.allclose(means[2, 3], inputs.actions[offsets[3] - 2 : offsets[3]].mean(0))


def test_pooled_policy_leaves_white_residuals(rng):
    o = rng.normal(size=(600, 2))
    context = np.repeat([0, 1], 3)
    turn = np.repeat([1.0, -1.0], 300)[:, None]  # the gain depends on the context
    a = o @ [[1.0, 0.5], [0.0, 2.0]] * turn + 0.3 * rng.normal(size=(600, 2))
    inputs = prepare(o, a, np.arange(0, 601, 100), context=context)

    def features(part):
        return np.c_[np.ones(len(part.observations)), part.observations]

    policy = fit_policy(inputs, features, ridge=1.0)
    r = policy.residuals(inputs, features(inputs))
    assert np.allclose(r.T @ r / 600, np.eye(2), atol=1e-3)
    # Ridge 0.02 n + 10 shrinks the gain of a context (300 steps) by 16 in 316.
    left = inputs.actions - features(inputs) @ policy.weights
    own = features(inputs)[:300]
    exact = np.linalg.solve(own.T @ own + 16 * np.eye(3), own.T @ left[:300])
    assert np.allclose(policy.context_weights[0], exact, atol=1e-4)


def test_paths_are_resampled_centered_and_of_unit_size(rng):
    o = rng.normal(size=(21, 2)).cumsum(0)
    inputs = prepare(o, rng.normal(size=(21, 1)), [0, 1, 21])
    found = shapes(inputs).reshape(2, 16, 2)
    path = inputs.observations[1:]
    expected = np.stack(
        [np.interp(np.linspace(0, 19, 16), np.arange(20), x) for x in path.T], axis=1
    )
    expected -= expected.mean(0)
    expected /= np.sqrt((expected**2).mean())
    assert np.allclose(found[1], expected, atol=1e-5)
    assert np.allclose(found[0], 0)


def test_kinematics_of_a_circle():
    angle = np.arange(40) * 0.3
    a = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    inputs = prepare(np.zeros((40, 1)), a, [0, 40])
    inputs = inputs.__class__(**{**vars(inputs), "actions": a.astype(np.float32)})
    speed, turn = kinematics._motion(inputs)
    assert np.allclose(speed, np.log(1.05), atol=1e-5)
    assert np.allclose(turn[1:], 0.3, atol=1e-5)


def test_context_means_with_a_missing_label(rng):
    rows = rng.normal(size=(5, 2))
    means = context_means(rows, np.array([0, 0, 2, 2, 2]))
    assert np.allclose(means[0], rows[:2].mean(0))
    assert np.allclose(means[1], rows.mean(0))
    assert np.allclose(means[2], rows[2:].mean(0))


def test_kmeans_fills_every_code_and_polish_keeps_clear_clusters(rng):
    assert set(kmeans(np.zeros((6, 2)), 3, 0, 2)) == {0, 1, 2}
    truth = np.repeat([0, 1, 2], 30)
    rows = np.eye(3)[truth] * 8 + rng.normal(size=(90, 3))
    labels = truth.copy()
    labels[::10] = (labels[::10] + 1) % 3  # a tenth is wrong to begin with
    assert (polish(rows, labels, 3) == truth).mean() > 0.97


def test_transfer_tells_shared_hands_from_none(rng):
    context = np.repeat(np.arange(9), 4)
    hands = rng.normal(size=(4, 12))
    noise = 0.3 * rng.normal(size=(36, 12))
    sizes = np.ones(36, int)
    shared = np.tile(hands, (9, 1)) + noise
    alone = rng.normal(size=(36, 12))
    of = np.arange(36)
    z = [
        linking.transfer(linking.Cells(of, context, means, sizes), 4, rng)
        for means in (shared, alone)
    ]
    assert z[0] > 5 > 3 > z[1]
    codes, _ = linking.link(linking.Cells(of, context, shared, sizes), 4, rng)
    assert all(len(set(codes[hand::4])) == 1 for hand in range(4))
