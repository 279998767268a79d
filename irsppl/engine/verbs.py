"""What the parts of the engine are asked: verbs whose code is selected by a part's type.

A part (family, rule, limit) is a NamedTuple of arrays and numbers, and its numba type carries its
class. A verb is a name only; a part's file says what it does for that part, by
``@implements(verb, Part)``. The caller compiles against the one that fits, so no function is ever
passed as an argument, which would keep the caller from being cached on disk.

Kernels allocate nothing: a part brings its work arrays with it, and belongs to one thread.
``rng`` is a random stream, uint64 [4] (``irsppl.inner.cpu.rng``).
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NoReturn, TypeVar, cast

from numba.extending import overload

from irsppl.inner.cpu.compiling import Inlined, njit
from irsppl.inner.cpu.rng import KERNEL

OPTIONS = {name: value for name, value in KERNEL.items() if name != "cache"}
# A part is passed by value, field by field, array by array: a call costs more than most verbs do.
INLINE = {**OPTIONS, "forceinline": True}


F = TypeVar("F", bound=Callable[..., Any])
# Parts that say themselves what a verb does.
_OWN: dict[Callable[..., Any], set[type]] = {}
# What is registered for a verb: whether it is for these types of arguments, and the code.
_CODES: dict[Callable[..., Any], list[tuple[Callable[[Any], bool], Any]]] = {}


def implements(asked: Callable[..., Any], *kinds: type, at: int = 0) -> Callable[[Any], Any]:
    """Register what the verb `asked` does where argument number `at` is one of `kinds`."""
    _OWN.setdefault(asked, set()).update(kinds)
    return _register(asked, at, lambda kind: kind in kinds)


def by_default(asked: Callable[..., Any]) -> Callable[[Any], Any]:
    """Register what the verb `asked` does for parts that do not implement it."""
    return _register(asked, 0, lambda kind: kind is not None and kind not in _OWN.get(asked, ()))


def _register(asked: Callable[..., Any], at: int, fits: Callable[[Any], bool]) -> Any:
    def register(code: Any) -> Any:
        if asked not in _CODES:
            _CODES[asked] = []
            _open(asked)
        _CODES[asked].append((lambda types: fits(getattr(types[at], "instance_class", None)), code))
        return code

    return register


def _open(asked: Callable[..., Any]) -> None:
    """Tell numba of a verb. Once: of several overloads it tries one after the other, each twice,
    wherever a verb is asked, and kernels take longer to compile."""

    def choose(*types: Any) -> Any:
        return next((code for fits, code in _CODES[asked] if fits(types)), None)

    options = {**INLINE, "pipeline_class": Inlined}
    overload(asked, jit_options=options, strict=False)(choose)


def verb(asked: F) -> F:
    """A question to parts: a signature and what it means. Python cannot ask it."""

    @functools.wraps(asked)
    def call(*_: Any) -> NoReturn:
        raise TypeError(f"{asked.__name__} exists in compiled code only")

    return cast(F, call)


def stateless(*kinds: type) -> None:
    """Parts that keep nothing from one decision to the next."""

    @implements(reset, *kinds)
    def _(part: Any) -> None:
        pass


def one_by_one(*kinds: type) -> None:
    """Families that go along a future reward by reward, however many come at once."""

    @implements(advance, *kinds)
    def _(family: Any, rng: Any, arm: int, at: int, upto: int, lam: float, cursor: Any) -> Any:
        while at < upto:
            cursor = follow(family, rng, arm, at, lam, cursor)
            at += 1
        return cursor


@njit(**INLINE)
def best_mean(family: Any, arms: int) -> int:
    """The arm with the best predictive mean."""
    chosen = 0
    for a in range(1, arms):
        if mean(family, a) > mean(family, chosen):
            chosen = a
    return chosen


@njit(**INLINE)
def most_pulled(pulls: Any) -> int:
    """The arm with the most pulls."""
    chosen = 0
    for a in range(1, pulls.size):
        if pulls[a] > pulls[chosen]:
            chosen = a
    return chosen


# ------------------------------------------------------------------ any part


@verb
def reset(part: Any) -> None:
    """Back to the state that the part was made with."""


# ------------------------------------------------------------------ a family: what is believed


@verb
def observe(family: Any, arm: int, reward: float) -> None:
    """The posterior after one reward."""


@verb
def mean(family: Any, arm: int) -> float:
    """Predictive mean of the arm's next reward."""


@verb
def mean_sd(family: Any, arm: int) -> float:
    """Standard deviation of the arm's true mean; Gaussian beliefs."""


@verb
def highest(family: Any, arm: int) -> float:
    """No true mean of the arm lies above this."""


@verb
def gain(family: Any, arm: int, lam: float) -> Any:
    """E[(mu - lam)+] and P(mu > lam) of the arm's true mean."""


@verb
def quantile(family: Any, arm: int, level: float, z: float, floor: float, start: float) -> float:
    """The quantile of the arm's true mean, or ``floor`` where it is no higher.

    ``z``: that of the standard normal law, ``start``: where to begin a search.
    """


@verb
def draw_means(family: Any, rng: Any, out: Any) -> None:
    """One draw of the arms' true means into ``out`` [K]."""


@verb
def draw_future_means(family: Any, rng: Any, counts: Any, out: Any) -> None:
    """One draw of the means after ``counts[b]`` more rewards of each arm b, into ``out`` [K]."""


@verb
def draw_path(
    family: Any, rng: Any, arm: int, length: int, out: Any, start: int, cumulative: bool
) -> float:
    """Means of the arm after its first 0, .., length - 1 rewards of one future, and the least.

    They go to ``out[start:]``, or their running sums with ``cumulative``. Independent arms only.
    """


@verb
def draw_prefix(
    family: Any, rng: Any, arm: int, skip: int, width: int, total: int, row: Any
) -> float:
    """Means of the arm along one future: after skip, .., skip + width - 1 rewards into ``row[1:]``.

    Returns the mean after skip + total - 1 rewards; the cost does not grow with ``total``. ``row``
    has room for 1 + skip + width numbers. Independent arms only.
    """


@verb
def draw_separable(
    family: Any, rng: Any, periods: int, cells: Any, stride: int, start: int, least: Any
) -> None:
    """What pulls of correlated arms pay in IRS.V-Zero-separable, along one future.

    The sum of what the first n pulls of arm a pay goes to ``cells[a * stride + start + n]``, the
    least of one pull to ``least[a]``.
    """


@verb
def renew(family: Any, rng: Any) -> None:
    """Forget the futures of the last decision: those that `follow` draws are new."""


@verb
def bracket(family: Any, horizon: int) -> Any:
    """(lo, hi): no arm's index lies above hi; lo is at most the highest mean."""


@verb
def begin(family: Any, arm: int, lam: float, node: int) -> Any:
    """A cursor at the start of the arm's future: (mean, E[(mu - lam)+], what `follow` needs).

    ``node``: number of ``lam`` in the bisection tree of the bracket; 0 where it is in none.
    """


@verb
def follow(family: Any, rng: Any, arm: int, at: int, lam: float, cursor: Any) -> Any:
    """The cursor one reward on, past reward number ``at``, which is drawn if it is not yet."""


@verb
def advance(family: Any, rng: Any, arm: int, at: int, upto: int, lam: float, cursor: Any) -> Any:
    """The cursor past rewards number ``at``, .., ``upto - 1``, which are drawn if they are not yet.

    Asked along one future with the same steps whatever ``lam``, so that a family may draw the sum
    of many rewards at once.
    """


@verb
def worth_many(
    family: Any, rng: Any, arm: int, lam: float, horizon: int, star: bool, cursor: Any
) -> bool:
    """Whether the mean of the index's phi(lam) over several futures of the arm is not negative.

    ``cursor``: of `begin`. The family was made with so many futures.
    """


# ------------------------------------------------------------------ a rule: which arm


@verb
def choose(rule: Any, family: Any, limits: Any, rng: Any, period: int, remaining: int) -> int:
    """The arm to pull in this period, with ``remaining`` left; -1 to stop."""


# ------------------------------------------------------------------ limits: what may be, when


@verb
def deliver(delay: Any, family: Any, period: int) -> None:
    """Every reward that is due by this period reaches the family."""


@verb
def take(delay: Any, family: Any, arm: int, pull: int, reward: float, period: int) -> None:
    """Pull number ``pull`` of the arm was made: its reward reaches the family now or later."""


@verb
def waiting(delay: Any, arm: int) -> int:
    """Pulls of the arm whose reward is pending."""


@verb
def look_ahead(delay: Any, period: int) -> None:
    """Forget what the last decision assumed of arrivals."""


@verb
def known(delay: Any, rng: Any, arm: int, moment: int) -> int:
    """Rewards of the arm that are known at the decision ``moment`` from now if it is pulled on.

    Asked with moments that rise by one; earlier ones again at will.
    """


@verb
def in_time(delay: Any, rng: Any, arm: int, pulls: int, periods: int) -> int:
    """Rewards of pending and the next ``pulls`` pulls of the arm, known by the last decision.

    The last decision is number ``periods - 1`` from now. Asked with pulls that rise by any number.
    """


@verb
def shown(delay: Any, arm: int, periods: int) -> float:
    """Mean number of the arm's rewards known by the last decision if it is pulled on; pending ones
    are counted as known."""


@verb
def affordable(purse: Any, arm: int) -> bool:
    """Whether the arm can be paid."""


@verb
def may_stop(purse: Any) -> bool:
    """Whether play may end before its periods do."""


@verb
def pay(purse: Any, arm: int, remaining: int) -> int:
    """Pay for a pull; periods left, ``remaining`` of them but for the money."""


@verb
def purchases(purse: Any, arm: int, periods: int) -> int:
    """Pulls of the arm that may teach something before one more pull of it."""


@verb
def rich(purse: Any, remaining: int) -> bool:
    """Whether constant payoffs surely send most pulls to the arm that pays best for its money."""


@verb
def price(purse: Any, arm: int) -> int:
    """What a pull of the arm costs, in the units of `best_constant`."""


@verb
def best_constant(purse: Any, scores: Any, remaining: int) -> int:
    """First action where every pull of arm a pays ``scores[a]``; -1 to stop."""


@verb
def best_groups(purse: Any, work: Any, num_arms: int, periods: int) -> int:
    """First action where the first n pulls of arm a pay ``work.cells[a * stride + PAD + n]``."""


@verb
def draw_periods(end: Any, rng: Any, period: int, remaining: int) -> int:
    """Periods that a sampled future plays from now on, this one included."""
