"""How good is an estimate? Against known sources, and against true probabilities."""

import numpy as np
from scipy.optimize import linear_sum_assignment
from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score


def recovery(sources: np.ndarray, codes: np.ndarray) -> dict[str, float]:
    """Agreement of codes with the sources that are known; 1 is perfect for all."""
    table = np.zeros((sources.max() + 1, codes.max() + 1), np.int64)
    np.add.at(table, (sources, codes), 1)
    matched = linear_sum_assignment(-table)
    return {
        "ari": float(adjusted_rand_score(sources, codes)),
        "nmi": float(normalized_mutual_info_score(sources, codes)),
        # every code named after its most frequent source
        "purity": float(table.max(axis=0).sum() / len(codes)),
        # one code for one source, matched as well as can be
        "matched_accuracy": float(table[matched].sum() / len(codes)),
    }


def calibration(estimated: np.ndarray, true: np.ndarray) -> dict[str, float]:
    """Estimated log-probabilities against those logged, per transition.

    The weights b_true / b_estimated are what off-policy evaluation would multiply
    with; their effective sample size is 1 (as a share) where the estimate is exact.
    """
    error = estimated.astype(np.float64) - true
    weights = np.exp(-error - np.max(-error))
    return {
        "bias": float(error.mean()),
        "mean_absolute_error": float(np.abs(error).mean()),
        "effective_sample_size": float(
            weights.sum() ** 2 / (weights**2).sum() / len(weights)
        ),
    }
