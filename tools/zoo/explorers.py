"""The processes that step environments for agents, and the agents' replay."""

import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from manyhands.envs.processes import Processes
from manyhands.errors import require
from manyhands.files import save_arrays
from manyhands.nn.networks import MLP
from manyhands.runs import flatten
from zoo import explorer
from zoo.explorer import Agent, Job, Shape


class Explorers:
    """Processes that act for agents. Use as a context manager.

    They write transitions into the replay's file, at the rows that a job names. The
    transitions depend on the agent's policy, its seeds and the epoch alone.
    """

    def __init__(self, agents: Sequence[Agent], replay: "Replay", workers: int):
        require("gymnasium", extra="mujoco", purpose="an environment")
        self._processes = Processes(Path(explorer.__file__).resolve())
        for part in np.array_split(np.arange(len(agents)), workers):
            given = {
                "agents": [agents[int(number)] for number in part],
                "replay": str(replay.path.resolve()),
                "shape": replay.shape,
            }
            self._processes.start([json.dumps(given)])

    def begin(self, nets: MLP, start: int, steps: int, number: int) -> None:
        """Start an epoch; it is under way when this returns."""
        path = self._processes.folder / "policies"
        save_arrays(path, flatten(nets))
        job = Job(str(path), start, steps, number)
        self._processes.tell((json.dumps(job) + "\n").encode())

    def finish(self) -> list[list[float]]:
        """Wait for the epoch; the returns of each agent's episodes that ended."""
        return [r for line in self._processes.hear() for r in json.loads(line)]

    def __enter__(self) -> "Explorers":
        return self

    def __exit__(self, *error: object) -> None:
        self._processes.close()


class Replay:
    """All transitions of all agents: on the device, and on disk to resume a run.

    Nothing is forgotten: rlkit's million is as much as the default run sees.
    """

    def __init__(self, path: Path, shape: Shape):
        self.path, self.shape = path, shape
        self.filled = 0  # transitions of each agent
        self.file = shape.open(path)
        rows = (shape.agents * shape.capacity, shape.columns)
        self.rows = jnp.zeros(rows, jnp.float32)

    def take(self, end: int) -> None:
        """Copy to the device the rows of the file up to this one."""
        new = jnp.asarray(self.file[:, self.filled : end])
        self.rows = _insert(self.rows, new, self.filled)
        self.filled = end

    def flush(self) -> None:
        self.file.flush()

    def restore(self, filled: int) -> None:
        """Rows written after the checkpoint are there too and will be written again."""
        self.filled = filled
        self.rows = jnp.asarray(self.file.reshape(self.rows.shape))


@partial(jax.jit, donate_argnames="rows")
def _insert(rows, new, start):
    by_agent = rows.reshape(len(new), -1, rows.shape[-1])
    return jax.lax.dynamic_update_slice(by_agent, new, (0, start, 0)).reshape(
        rows.shape
    )
