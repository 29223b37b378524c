"""The algorithms by name: those of this package, and those of installed packages.

A package adds one by a line in its pyproject.toml, for the command line and the
processes of a benchmark too:

    [project.entry-points."manyhands.algorithms"]
    mine = "my_package.mine:MINE"
"""

from importlib.metadata import entry_points

from manyhands.algos import (
    bc,
    bcq,
    brac,
    clone,
    cql,
    fisher_brc,
    iql,
    lbrac_v_printed,
    mopo,
    mopp,
    plas,
    rebrac,
    td3_bc,
    vae_bc,
)
from manyhands.algos.algorithm import Algorithm
from manyhands.errors import UserError

ALGORITHMS = {
    "bc": bc.BC,
    "clone": clone.CLONE,
    "brac_p": brac.BRAC_P,
    "brac_v": brac.BRAC_V,
    "lbrac_v": lbrac_v_printed.LBRAC_V,
    "cql": cql.CQL,
    "fisher_brc": fisher_brc.FISHER_BRC,
    "vae_bc": vae_bc.VAE_BC,
    "bcq": bcq.BCQ,
    "plas": plas.PLAS,
    "td3_bc": td3_bc.TD3_BC,
    "iql": iql.IQL,
    "rebrac": rebrac.REBRAC,
    "mopo": mopo.MOPO,
    "mopp": mopp.MOPP,
}


for _found in entry_points(group="manyhands.algorithms"):
    ALGORITHMS.setdefault(_found.name, _found.load())


def algorithm(name: str) -> Algorithm:
    if name not in ALGORITHMS:
        known = ", ".join(ALGORITHMS)
        raise UserError(f"algo: expected one of {known}, got {name}")
    return ALGORITHMS[name]
