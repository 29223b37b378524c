"""What Q-functions' losses have in common."""

from jaxtyping import Array, Float

from manyhands.nn.critics import Critic, squared_error, values_of
from manyhands.types import Batch, Metrics


def critic_loss(
    critic: Critic, batch: Batch, y: Float[Array, " batch"]
) -> tuple[Float[Array, ""], Metrics]:
    """L_Q = sum_j (Q_j(s, a) - y)^2."""
    q = values_of(critic, batch.observations, batch.actions)
    loss = squared_error(q, y)
    return loss, {"critic/loss": loss, "critic/q": q.mean()}
