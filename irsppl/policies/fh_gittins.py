"""The finite-horizon Gittins index policy, for Bernoulli arms."""

from __future__ import annotations

from functools import lru_cache
from typing import ClassVar

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from irsppl._checks import host64, is_concrete
from irsppl.bandit import Bandit
from irsppl.inner.gittins import gittins_index, index_table
from irsppl.penalties.lagrangian import require_bernoulli
from irsppl.policies._base import Policy


class FHGittins(Policy):
    """The arm with the largest finite-horizon Gittins index for the periods that remain.

    Kaufmann, Cappe and Garivier (2012) use it as a policy; Nino-Mora (2011) computes the index.
    Single decisions use the exact index, simulated paths a table of it (off by 6e-5 at most).
    """

    name: ClassVar[str] = "fh-gittins"
    # Its tables are for rewards that come at once and a known end.
    serves: ClassVar[frozenset[str]] = frozenset()
    deterministic: ClassVar[bool] = True
    traceable: ClassVar[bool] = False

    def check(self, bandit: Bandit) -> None:
        require_bernoulli(bandit, self.name)

    def __call__(self, key: Array, bandit: Bandit) -> Array:
        if not is_concrete(bandit):
            raise ValueError("fh-gittins decides on the host: it cannot be traced by JAX")
        return jnp.asarray(np.argmax(self.indices(bandit)), jnp.int32)

    def indices(self, bandit: Bandit) -> np.ndarray:
        """The index of each arm, `[K]`, in float64 on the host."""
        belief = require_bernoulli(bandit, self.name)
        return gittins_index(host64(belief.alpha), host64(belief.beta), int(bandit.remaining))

    def tables(self, bandit: Bandit) -> tuple[np.ndarray, np.ndarray]:
        """Index tables `[G, states]` of the distinct arms, and which one each arm uses, `[K]`."""
        belief = require_bernoulli(bandit, self.name)
        pairs = list(zip(host64(belief.alpha), host64(belief.beta), strict=True))
        distinct = sorted(set(pairs))
        tables = [_table(float(a), float(b), int(bandit.remaining)) for a, b in distinct]
        group = np.array([distinct.index(pair) for pair in pairs], np.int64)
        return np.stack(tables), group


_table = lru_cache(maxsize=2)(index_table)
