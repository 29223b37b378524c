"""The best behavior of a behavior set, as it was fitted: what a learner must beat.

Nothing is learnt beyond the set. It is what LBRAC-v starts from; see there for which
behavior is the best. At test time: the mode.
"""

from manyhands.algos import lbrac_v
from manyhands.algos.algorithm import Algorithm, Common, Given, Need
from manyhands.algos.starting_sets import Start
from manyhands.options import NOT_NEGATIVE, Range, option, options
from manyhands.types import Batch, Key, Metrics

NONE = Range(
    0, 0, words="0, for clone makes no updates of its own (behavior_steps: of its set)"
)


@options
class Options(Common):
    steps: int = option(0, "Updates after the behavior set: none.", NONE)
    behavior_steps: int = option(
        0,
        "Updates of the behavior set; 0: as many as `fit` takes by default.",
        NOT_NEGATIVE,
    )


PRESETS = {
    "default": Options(),
    "paper": Options(behavior_steps=500_000, standardise=False),
}


def start(key: Key, given: Given, options: Options) -> lbrac_v.Model:
    del key, options
    found: Start = given.behavior
    b = found.behaviors
    return lbrac_v.Model(b.trunk, b.head, b.E[found.best], b.E, b.W)


def update(
    state: lbrac_v.Model, batch: Batch, key: Key, config: Options, fitted: None
) -> tuple[lbrac_v.Model, Metrics]:
    del batch, key, config, fitted
    return state, {}


CLONE = Algorithm(
    PRESETS,
    start,
    update,
    fitted=lambda given, options: None,
    model=lambda state, fitted: state,
    act=lbrac_v.act,
    skeleton=lbrac_v.skeleton,
    needs=(Need("vq", lbrac_v.set_changes),),
    unpadded=lbrac_v.unpadded,
    embeddings=lbrac_v.embeddings,
)
