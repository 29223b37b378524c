"""What a fleet will compute, in shapes alone: nothing is compiled, nothing is run.

One program is one learner's update with the arguments of one replica. Their FLOPs and
bytes are what `counting.py` makes seconds and memory of.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from manyhands.algos.algorithm import Algorithm, Given, Setting
from manyhands.algos.registry import algorithm
from manyhands.algos.starting_sets import Start
from manyhands.behavior import options as fit_options
from manyhands.behavior import schedule, vq_learning
from manyhands.behavior.fitting import codes_to_start_with
from manyhands.behavior.methods import METHODS
from manyhands.behavior.problem import Scaling
from manyhands.data.trajectories import Trajectories
from manyhands.dynamics.fit import KINDS, Dynamics
from manyhands.dynamics.settings import Inputs, Settings
from manyhands.options import choose
from manyhands.sweep.plan import Fleet
from manyhands.types import Batch, Box, Pytree

LONGEST = 1000  # steps of an episode, unless somebody knows better


class Sizes(NamedTuple):
    """Of a data set: all that shapes depend on."""

    observations: int
    actions: int
    transitions: int
    trajectories: int
    env: str | None  # where policies are evaluated
    terminals: bool = True  # whether any world ended
    episode: int = LONGEST  # steps of the longest one

    @staticmethod
    def of(data: Trajectories) -> "Sizes":
        return Sizes(
            data.observation_size,
            data.action_size,
            data.transitions,
            len(data),
            data.env_id,
            bool(data.terminals.any()),
        )

    @property
    def columns(self) -> int:
        """Of `fleet.Packed`."""
        return 2 * self.observations + 2 * self.actions + 3

    def stand_in(self) -> Trajectories:
        """Two steps, for those who decide by a look at the data."""
        ends = np.array([False, self.terminals])
        return Trajectories.from_arrays(
            np.zeros((2, self.observations)),
            np.zeros((2, self.actions)),
            np.zeros(2),
            ends,
            timeouts=~ends & [False, True],
            next_observations=np.zeros((2, self.observations)),
            env_id=self.env,
        )


class Work(NamedTuple):
    """Of one update of one replica, before the compiler has simplified it."""

    flops: float
    products: float  # of matrices: kernels, with others around each
    saved: float  # bytes of their results, which gradients need

    def __add__(self, other: "Work") -> "Work":  # pyright: ignore[reportIncompatibleMethodOverride]
        return Work(*(a + b for a, b in zip(self, other)))

    def times(self, many: int) -> "Work":
        # What a loop saves in one round it saves in all.
        return Work(*(many * a for a in self))


@dataclass(frozen=True)
class Program:
    """`steps` updates of `replicas` at once."""

    name: str
    update: Callable[..., Any]
    arguments: tuple[Pytree, ...]  # shapes for one replica; the state comes first
    steps: int
    replicas: int
    batch_size: int = 0

    def work(self) -> Work:
        return _work(jax.make_jaxpr(self.update)(*self.arguments).jaxpr)

    @property
    def state_bytes(self) -> int:
        """Of one replica: parameters, moments, targets, what was fitted before."""
        return sum(
            leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(self.arguments)
        )


def _work(jaxpr: Any) -> Work:
    """XLA's own count takes a loop for one round of it."""
    found = Work(0, 0, 0)
    for equation in _needed(jaxpr):
        sizes = [getattr(out.aval, "size", 0) for out in equation.outvars]
        inner = [_work(part) for part in _inside(equation)]
        if equation.primitive.name == "dot_general":
            (contracted, _), _ = equation.params["dimension_numbers"]
            shape = equation.invars[0].aval.shape
            depth = math.prod(shape[axis] for axis in contracted)
            found += Work(2.0 * depth * sizes[0], 1, 4 * sizes[0])
        elif inner:
            rounds = equation.params.get("length", 1)  # of a scan
            found += sum(inner, Work(0, 0, 0)).times(rounds)
        else:
            found += Work(sum(sizes), 0, 0)
    return found


def _needed(jaxpr: Any) -> list[Any]:
    """Operations whose results are used: a compiler leaves the others out, too.

    Gradients that are written out give those of all arguments, wanted or not.
    """
    wanted, found = {id(one) for one in jaxpr.outvars}, []
    for equation in reversed(jaxpr.eqns):
        if equation.effects or any(id(out) in wanted for out in equation.outvars):
            found.append(equation)
            wanted.update(map(id, equation.invars))
    return found


def _inside(equation: Any) -> list[Any]:
    """Programs within an operation: loops, branches, functions."""
    found = []
    for value in equation.params.values():
        for one in value if isinstance(value, tuple | list) else [value]:
            inner = getattr(one, "jaxpr", one)
            if hasattr(inner, "eqns"):
                found.append(inner)
    return found


def programs(fleet: Fleet, sizes: Sizes) -> list[Program]:
    """In the order in which they run. `sizes` of the largest of its data sets."""
    learner = algorithm(fleet.algo)
    options = choose(learner.presets, fleet.preset, fleet.options)
    if not fleet.k:
        found, options, given = _of_learner(learner, options, fleet, sizes)
        if learner.acts_on_device and fleet.episodes:
            found.append(_acting(learner, options, given, sizes, fleet))
        return [program for program in found if program.steps]
    # Behavior sets of all K and seeds at once, then all policies, with as many codes.
    changes = learner.first_changes(options)
    preset = learner.preset_first(fleet.preset)
    chosen = fit_options.resolve(preset, changes, sizes.transitions)
    starts = [codes_to_start_with(k, sizes.trajectories, chosen) for k in fleet.k]
    found = _of_method("vq", chosen, sizes, max(starts), len(fleet.keys))
    most = max(n if k == "auto" else int(k) for k, n in zip(fleet.k, starts))
    given = _given(sizes)._replace(behavior=_behavior_set(chosen, sizes, most))
    found.append(_policy(learner, options, given, sizes, len(fleet.keys)))
    return [program for program in found if program.steps]


def _of_learner(
    learner: Algorithm, options: Any, fleet: Fleet, sizes: Sizes
) -> tuple[list[Program], Any, Given]:
    """What it fits first, the dynamics it learns before, and itself."""
    many, given, found = len(fleet.keys), _given(sizes), []
    options = learner.settle(options, Setting(sizes.stand_in(), sizes.env, False))
    if learner.first is not None:
        changes = learner.first_changes(options)
        preset = learner.preset_first(fleet.preset)
        if learner.first in METHODS:
            chosen = fit_options.resolve(preset, changes, sizes.transitions)
            found += _of_method(learner.first, chosen, sizes, 1, many)
            model = _method_model(learner.first, chosen, sizes, 1)
        else:
            other = algorithm(learner.first)
            chosen = choose(other.presets, preset, changes)
            found += _of_learner(other, chosen, fleet, sizes)[0]
            model = _learner_model(other, given, chosen)
        given = given._replace(behavior=model)
    if learner.before:
        settings = _dynamics_settings(options)
        found.append(_of_dynamics(settings, sizes, many))
        given = given._replace(dynamics=_dynamics(settings, sizes))
    found.append(_policy(learner, options, given, sizes, many))
    return found, options, given


def _given(sizes: Sizes) -> Given:
    """`behavior` and `dynamics` may be functions, called where shapes are made."""
    bound = jnp.ones(sizes.actions)
    scaling = Scaling.none(sizes.observations)
    box = Box(-bound, bound)
    return Given(sizes.observations, sizes.actions, box, scaling=scaling)


def _filled(given: Given) -> Given:
    made = {
        name: getattr(given, name)()
        for name in ("behavior", "dynamics")
        if callable(getattr(given, name))
    }
    return given._replace(**made)


# Policies


def _policy(
    learner: Algorithm, options: Any, given: Given, sizes: Sizes, many: int
) -> Program:
    def parts():
        there = _filled(given)
        state = learner.start(jax.random.key(0), there, options)
        return state, learner.fitted(there, options)

    state, fitted = jax.eval_shape(parts)
    config, rows = jax.tree.map(lambda _: _floats(), options), options.batch_size
    arguments = state, _batch(sizes, rows), _key(), config, fitted
    return Program("policies", learner.update, arguments, options.steps, many, rows)


def _learner_model(
    learner: Algorithm, given: Given, options: Any
) -> Callable[[], Pytree]:
    def model():
        there = _filled(given)
        state = learner.start(jax.random.key(0), there, options)
        return learner.model(state, learner.fitted(there, options))

    return model


def _acting(
    learner: Algorithm, options: Any, given: Given, sizes: Sizes, fleet: Fleet
) -> Program:
    """Of those that plan in every state, on the device."""
    model = jax.eval_shape(_learner_model(learner, given, options))
    rows = _floats(fleet.episodes, sizes.observations)
    keys = jax.eval_shape(lambda: jax.random.split(jax.random.key(0), fleet.episodes))
    box = Box(*[_floats(sizes.actions)] * 2)
    steps = sizes.episode * (fleet.evaluations + 1)
    many = len(fleet.keys)
    return Program("plans", learner.act, (model, box, rows, keys), steps, many)


# Behaviors


def _of_method(
    method: str, options: fit_options.Options, sizes: Sizes, codes: int, many: int
) -> list[Program]:
    state = jax.eval_shape(_method_start(method, options, sizes, codes))
    config = vq_learning.Config(*[_floats()] * len(vq_learning.Config._fields))
    box = Box(*[_floats(sizes.actions)] * 2)
    fitted = vq_learning.Fitted(box, _floats(codes, dtype=jnp.bool_))
    batch = _batch(sizes, options.batch_size)
    arguments = state, batch, _key(), config, fitted
    stages = schedule.plan(method, options)
    rows = options.batch_size
    return [
        Program("behaviors", s.update, arguments, s.end - s.first, many, rows)
        for s in stages
    ]


def _method_start(
    method: str, options: fit_options.Options, sizes: Sizes, codes: int
) -> Callable[[], Pytree]:
    given = sizes.observations, sizes.actions, codes, sizes.trajectories
    return lambda: METHODS[method].init(jax.random.key(0), *given, options)


def _method_model(
    method: str, options: fit_options.Options, sizes: Sizes, codes: int
) -> Callable[[], Pytree]:
    start = _method_start(method, options, sizes, codes)
    return lambda: METHODS[method].model(start())


def _behavior_set(
    options: fit_options.Options, sizes: Sizes, codes: int
) -> Callable[[], Start]:
    start = _method_start("vq", options, sizes, codes)

    def found() -> Start:
        state = start()
        there = np.ones(codes, bool), sizes.trajectories
        return Start(state.policy.tree(), vq_learning.values(state), 0, 1.0, *there)

    return found


# Dynamics


def _dynamics_settings(options: Any) -> Settings:
    """As the learners that need them say in their `before`."""
    chain = hasattr(options, "head_width")
    return Settings(
        kind="autoregressive" if chain else "gaussian",
        members=options.members,
        elites=options.elites,
        width=options.model_width,
        steps=options.model_steps,
        batch_size=options.model_batch,
        patience=options.patience,
        rate=options.model_rate,
        head_width=options.head_width if chain else 0,
        learn_ending=options.ending == "learned",
        changes=getattr(options, "changes", True),
    )


def _inputs(sizes: Sizes) -> Inputs:
    ones = jnp.ones(sizes.observations + sizes.actions)
    return Inputs(ones, ones)


def _of_dynamics(settings: Settings, sizes: Sizes, many: int) -> Program:
    kind, shape = KINDS[settings.kind], (sizes.observations, sizes.actions)
    state = jax.eval_shape(lambda: kind.start(jax.random.key(0), *shape, settings))
    config = jax.tree.map(lambda _: _floats(), settings)
    rows = settings.members * settings.batch_size
    batch = _batch(sizes, rows)
    inputs = jax.eval_shape(lambda: _inputs(sizes))
    arguments = state, batch, _key(), config, inputs
    return Program("dynamics", kind.update, arguments, settings.steps, many, rows)


def _dynamics(settings: Settings, sizes: Sizes) -> Callable[[], Dynamics]:
    kind, shape = KINDS[settings.kind], (sizes.observations, sizes.actions)

    def found() -> Dynamics:
        state = kind.start(jax.random.key(0), *shape, settings)
        inputs = _inputs(sizes)
        elites = jnp.arange(settings.elites, dtype=jnp.int32)
        # NumPy's: learners look at their values.
        quantiles: Any = np.arange(101, dtype=np.float32)
        rewards: Any = np.array([0, 1], np.float32)
        members = kind.members(state, inputs, settings)
        return Dynamics(members, elites, quantiles, rewards, inputs, {})

    return found


# Shapes


def _floats(*shape: int, dtype: Any = jnp.float32) -> Any:
    return jax.ShapeDtypeStruct(shape, dtype)


def _key() -> Any:
    return jax.eval_shape(lambda: jax.random.key(0))


def _batch(sizes: Sizes, rows: int) -> Batch:
    states = _floats(rows, sizes.observations)
    actions = _floats(rows, sizes.actions)
    number, trajectory = _floats(rows), _floats(rows, dtype=jnp.int32)
    return Batch(states, actions, number, states, number, trajectory, actions)
