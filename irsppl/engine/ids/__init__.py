"""Information-directed sampling, a rule for each kind of rewards."""

from irsppl.engine.ids.bernoulli import bernoulli_rule as bernoulli_rule
from irsppl.engine.ids.gaussian import gaussian_rule as gaussian_rule
from irsppl.engine.ids.mixture import MUTUAL as MUTUAL
from irsppl.engine.ids.mixture import VARIANCE as VARIANCE
from irsppl.engine.ids.points import points_rule as points_rule
