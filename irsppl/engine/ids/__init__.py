"""Information-directed sampling, a rule for each kind of rewards."""

from irsppl.engine.ids.bernoulli import bernoulli
from irsppl.engine.ids.gaussian import gaussian
from irsppl.engine.ids.mixture import MUTUAL, VARIANCE

__all__ = ["MUTUAL", "VARIANCE", "bernoulli", "gaussian"]
