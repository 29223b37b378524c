"""Networks and densities once more, in float64 NumPy: to check ours against."""

import numpy as np


def double(x) -> np.ndarray:
    return np.asarray(x, np.float64)


def mlp(net, x: np.ndarray) -> np.ndarray:
    """ReLU layers of an `MLP`; a leading member axis gives a leading axis."""
    many = net.layers[0].w.ndim == 3
    outputs = []
    for member in range(net.layers[0].w.shape[0] if many else 1):
        h = double(x)
        for number, layer in enumerate(net.layers):
            w, b = double(layer.w), double(layer.b)
            h = h @ (w[member] if many else w) + (b[member] if many else b)
            h = h if number == len(net.layers) - 1 else np.maximum(h, 0)
        outputs.append(h)
    return np.stack(outputs) if many else outputs[0]


def log_prob(action, mean, log_std, center, scale) -> np.ndarray:
    """Of a tanh-Gaussian on a box, summed over the last axis."""
    z = (double(action) - center) / scale
    standard = (np.arctanh(z) - mean) / np.exp(log_std)
    normal = -0.5 * standard**2 - log_std - 0.5 * np.log(2 * np.pi)
    return np.sum(normal - np.log(1 - z**2) - np.log(scale), axis=-1)


def kl(mean, log_std, other_mean, other_log_std) -> np.ndarray:
    """Between Gaussians, by integrating on a grid: no closed form is used."""
    grid = np.linspace(-12, 12, 20_001)
    mean, log_std, other_mean, other_log_std = np.broadcast_arrays(
        *map(double, (mean, log_std, other_mean, other_log_std))
    )
    x = mean[..., None] + np.exp(log_std)[..., None] * grid

    def log_density(m, s):
        standard = (x - m[..., None]) / np.exp(s)[..., None]
        return -0.5 * standard**2 - s[..., None] - 0.5 * np.log(2 * np.pi)

    log_p, log_q = log_density(mean, log_std), log_density(other_mean, other_log_std)
    width = np.exp(log_std) * (grid[1] - grid[0])
    return (np.sum(np.exp(log_p) * (log_p - log_q), axis=-1) * width).sum(axis=-1)


def slope(function, array: np.ndarray, index: tuple[int, ...]) -> float:
    """Of a function of an array, by central differences."""
    step, values = 1e-6, []
    for sign in (1, -1):
        moved = array.copy()
        moved[index] += sign * step
        values.append(function(moved))
    return (values[0] - values[1]) / (2 * step)
