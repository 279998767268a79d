"""Information-directed sampling, a rule for each kind of rewards."""

from irsppl.engine.ids.bernoulli import bernoulli_rule
from irsppl.engine.ids.gaussian import gaussian_rule
from irsppl.engine.ids.mixture import MUTUAL, VARIANCE

__all__ = ["MUTUAL", "VARIANCE", "bernoulli_rule", "gaussian_rule"]
