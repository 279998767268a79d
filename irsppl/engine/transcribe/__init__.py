"""A traced JAX function as scalar code for kernels: what a user's model computes, without XLA.

Arrays of a traced program are small and of fixed shape here (the latents of one point), so every
element becomes a variable, and what only moves elements about is done while code is written. What
depends on the point alone, on the reward alone, or on both is kept apart: callers put each where it
is worked out least often. Programs with loops of unknown length, sorts and the like raise
`Untranscribable`, and are left to XLA.
"""

from irsppl.engine.transcribe.operations import CHANCE as CHANCE
from irsppl.engine.transcribe.operations import POINT as POINT
from irsppl.engine.transcribe.operations import REWARD as REWARD
from irsppl.engine.transcribe.operations import Key as Key
from irsppl.engine.transcribe.operations import Node as Node
from irsppl.engine.transcribe.operations import Untranscribable as Untranscribable
from irsppl.engine.transcribe.program import Program as Program
from irsppl.engine.transcribe.text import Text as Text
