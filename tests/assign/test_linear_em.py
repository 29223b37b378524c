"""The mixture of linear policies: exact densities, and EM that climbs."""

import numpy as np
from hands import linear_hands
from scipy.stats import multivariate_normal
from sklearn.metrics import adjusted_rand_score

from manyhands.assign.inputs import prepare
from manyhands.assign.linear_em import fit_linear, maximize, sums_of


def test_log_likelihood_is_the_sum_of_normal_densities():
    o, a, offsets, source = linear_hands(each=3, steps=5)
    inputs = prepare(o, a, offsets)
    sums = sums_of(inputs)
    mixture = maximize(sums, np.eye(3)[source])
    phi = np.c_[np.ones(len(o)), inputs.observations]
    expected = np.zeros((len(source), 3))
    for k in range(3):
        mean = phi @ mixture.weights[k]
        for n, m in enumerate(inputs.trajectory):
            density = multivariate_normal(mean[n], mixture.covariances[k])
            expected[m, k] += density.logpdf(inputs.actions[n])
    assert np.allclose(mixture.log_likelihood(sums), expected)
    # In the units of the data every dimension's density is divided by its deviation.
    per_step = mixture.step_log_prob(inputs)
    units = np.log(a.std(0)).sum() * np.diff(offsets)[:, None]
    summed = np.add.reduceat(per_step, offsets[:-1])
    assert np.allclose(summed, expected - units, atol=1e-3)


def test_em_finds_linear_hands():
    o, a, offsets, source = linear_hands()
    mixture, resp, _ = fit_linear(prepare(o, a, offsets), 3)
    assert adjusted_rand_score(source, resp.argmax(1)) == 1
    # The noise of these hands has deviation .3 in the units of the data.
    scale = a.std(0)
    deviation = np.sqrt(np.diagonal(mixture.covariances, axis1=1, axis2=2)) * scale
    assert np.allclose(deviation, 0.3, atol=0.03)


def test_a_given_start_is_only_improved():
    o, a, offsets, source = linear_hands(noise=1.5, steps=10)
    inputs = prepare(o, a, offsets)
    sums = sums_of(inputs)
    start = maximize(sums, np.eye(3)[source])
    joint = start.log_likelihood(sums) + np.log(start.shares)
    before = np.logaddexp.reduce(joint, axis=1).sum()
    assert fit_linear(inputs, 3, codes=source)[2] >= before - 1e-6
