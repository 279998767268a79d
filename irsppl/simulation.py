"""Replications of policies on shared random futures, and single decisions."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Float, Int

from irsppl._checks import (
    MOST_FUTURES,
    as_count,
    as_floats,
    as_key,
    check_flag,
    check_run,
    is_listing,
    numbered_keys,
    require_finite,
    side_key,
)
from irsppl._cluster import check_client, spread
from irsppl._workers import run_chunks, threads_for
from irsppl.bandit import Bandit, check_bandit
from irsppl.beliefs import Cloud, Upkeep, warn_simulated
from irsppl.engine import Kernel
from irsppl.engine import kernel as find_kernel
from irsppl.futures import chunks, draw_outcomes, warn_of_tails
from irsppl.outcomes import Outcome
from irsppl.penalties import find_penalty
from irsppl.penalties.base import after_pending_batch
from irsppl.penalties.replay import News, can_replay
from irsppl.policies import AgentPolicy, Policy, find_policy
from irsppl.policies.function import ArmCheck, FunctionPolicy, PlainPolicy
from irsppl.policies.generators import seed_of, seeded
from irsppl.policies.irs import IRS
from irsppl.policies.paths import Play, player, seeds_of

# Decisions of `action_probabilities` made side by side.
_BATCH = 64


# ------------------------------------------------------------------ one decision


class Decision(NamedTuple):
    """An arm (-1 to stop), and the probability with which the policy chose it."""

    arm: int
    probability: float


@eqx.filter_jit
def _decide(policy: Policy, key: Array, bandit: Bandit) -> Array:
    return policy(key, bandit)


def choose(bandit: Bandit, policy: Any, key: Any = None) -> int:
    """The arm to pull now; -1 to stop, where a budget allows it.

    key: an int seed or a JAX key, to repeat a decision; None: fresh entropy in each call. A loop
    that is to be repeated gives each period a key of its own, `key=int(bandit.period)`.
    """
    check_bandit(bandit)
    bandit.check_open()
    found = find_policy(policy, bandit)
    bandit, label = bandit.without_record(), _label(policy, found)
    return _choose(bandit, found, find_kernel(found, bandit), _key(key), label, key is not None)


def _choose(
    bandit: Bandit, policy: Policy, kernel: Kernel | None, key: Array, label: str, fixed: bool
) -> int:
    read = ArmCheck(label, bandit)
    if kernel is not None and kernel.decisions is not None:
        return read(np.asarray(kernel.decisions(seeds_of(key, policy.name, 0, 1))[0]))
    if policy.traceable:
        return read(np.asarray(_decide(policy, key, bandit)))
    with seeded(key) if fixed else contextlib.nullcontext():
        return read(policy.player(seed_of(key), bandit).decide(key, bandit))


def _key(key: Any) -> Array:
    """The key that is given; None: one from the operating system's entropy."""
    if key is not None:
        return as_key(key)
    high, low = np.random.SeedSequence().generate_state(2)
    return jax.random.fold_in(jax.random.key(int(high)), low)


def decide(bandit: Bandit, policy: Any, key: Any = None, num_samples: int = 1000) -> Decision:
    """What `choose` decides with this key, with its probability: for logs to be analysed later.

    The probability is 1 for a policy that leaves nothing to chance here. Otherwise it is
    (1 + n) / (1 + num_samples), where n of `num_samples` other decisions from the same state are
    the same: the decision itself counts, so that what has happened is never said to be impossible
    and nothing is below 1 / (1 + num_samples). Averages weighted by its inverse are unbiased but
    for arms that no draw would show.
    """
    check_bandit(bandit)
    num_samples = as_count("num_samples", num_samples, maximum=MOST_FUTURES)
    bandit.check_open()
    found = find_policy(policy, bandit)
    label = _label(policy, found)
    settled = found.settled(bandit)
    bandit = bandit.without_record()
    drawn, kernel = _key(key), find_kernel(found, bandit)
    arm = _choose(bandit, found, kernel, drawn, label, key is not None)
    if settled:
        return Decision(arm, 1.0)
    counts = _count(bandit, found, kernel, side_key(drawn, "propensity"), num_samples, label)
    return Decision(arm, (1 + int(counts[arm])) / (1 + num_samples))


@eqx.filter_jit
def decide_many(policy: Policy, keys: Array, bandit: Bandit) -> Array:
    """Arms of a traceable policy, one for each key of `keys` [parts, side by side]."""
    return jax.lax.map(jax.vmap(lambda key: policy(key, bandit)), keys).ravel()


def action_probabilities(
    bandit: Bandit, policy: Any, key: Any = None, num_samples: int = 1000
) -> Float[np.ndarray, " K"]:
    """Probability that the policy pulls each arm now: its propensities.

    Exact where the policy leaves nothing to chance. Otherwise estimated from `num_samples` sampled
    decisions, n_a of them arm a, as (n_a + 1) / (num_samples + M) by Laplace's rule, where M is the
    number of possible decisions: arms that may be pulled, and to stop where there is a budget (what
    is missing to 1 is the probability of that). So no arm that can be pulled gets 0; the least is
    1 / (num_samples + M). For the probability of a decision that was made, see `decide`. key: as
    in `choose`.
    """
    check_bandit(bandit)
    num_samples = as_count("num_samples", num_samples, maximum=MOST_FUTURES)
    bandit.check_open()
    found = find_policy(policy, bandit)
    label, settled = _label(policy, found), found.settled(bandit)
    bandit = bandit.without_record()
    kernel = find_kernel(found, bandit)
    if settled:
        arm = _choose(bandit, found, kernel, _key(key), label, key is not None)
        return np.eye(bandit.num_arms)[arm] if arm >= 0 else np.zeros(bandit.num_arms)
    counts = _count(bandit, found, kernel, _key(key), num_samples, label)[:-1]
    possible = np.asarray(bandit.access.allowed(bandit))
    others = int(bandit.access.may_stop)
    return np.where(possible, counts + 1, 0) / (num_samples + possible.sum() + others)


def _count(
    bandit: Bandit, policy: Policy, kernel: Kernel | None, key: Array, num_samples: int, label: str
) -> Int[np.ndarray, " K+1"]:
    """How many of so many decisions are each arm, and to stop."""
    read = ArmCheck(label, bandit)
    if kernel is not None and kernel.decisions is not None:
        arms = np.asarray(kernel.decisions(seeds_of(key, policy.name, 0, num_samples)), int)
    elif policy.traceable:
        # Always the same number side by side: another num_samples compiles nothing.
        numbers = np.arange(-(-num_samples // _BATCH) * _BATCH, dtype=np.uint32)
        batches = [numbered_keys(key, part)[None] for part in numbers.reshape(-1, _BATCH)]
        parts = [np.asarray(decide_many(policy, keys, bandit)) for keys in batches]
        arms = np.concatenate(parts)[:num_samples]  # the last ones are surplus
        for arm in np.unique(arms):
            read(arm)
    else:
        keys = [jax.random.fold_in(key, number) for number in range(num_samples)]
        with seeded(key):
            made = [policy.player(seed_of(k), bandit).decide(k, bandit) for k in keys]
            arms = np.array(list(map(read, made)))
    return np.bincount(np.where(arms < 0, bandit.num_arms, arms), minlength=bandit.num_arms + 1)


# ------------------------------------------------------------------ simulate


def name_policies(policies: Any) -> dict[str, Policy]:
    """{label: policy} from a name, a policy, a list of them, or such a mapping."""
    if isinstance(policies, Mapping):
        items = [(str(label), policy) for label, policy in policies.items()]
    else:
        several = policies if is_listing(policies) else [policies]
        items = [(_label(policy, find_policy(policy)), policy) for policy in several]
    if not items:
        raise ValueError("policies must name at least one policy")
    labels = [label for label, _ in items]
    twice = sorted({label for label in labels if labels.count(label) > 1})
    if twice:
        raise ValueError(f"policies has the label {twice[0]!r} twice: give {{label: policy}}")
    return {label: find_policy(policy) for label, policy in items}


def _label(given: Any, found: Policy) -> str:
    """What a policy is called, from how it was given and what was found."""
    if isinstance(given, str):
        return given
    if isinstance(found, AgentPolicy):
        return found.label
    if not isinstance(found, (FunctionPolicy, PlainPolicy)):
        return _describe(found)
    inner = found.function
    if isinstance(inner, Policy):
        return _describe(inner)
    return getattr(inner, "__name__", None) or type(inner).__name__


def _describe(policy: Policy) -> str:
    if isinstance(policy, IRS):
        return policy.penalty.label
    plain = (bool, int, float, str)
    settings = ", ".join(
        f"{n}={value}" for n, value in vars(policy).items() if isinstance(value, plain)
    )
    return f"{policy.name}({settings})" if settings else policy.name


def simulate(
    bandit: Bandit,
    policies: Any,
    key: Any = 0,
    num_replications: int = 20_000,
    means: Any = None,
    *,
    per_period: bool = False,
    start: int = 0,
    outcomes: Outcome | None = None,
    steadied: bool = True,
    progress: bool | None = None,
    workers: int | None = None,
    client: Any = None,
) -> Any:
    """Play every policy on the same random futures.

    policies: a list of names, policies or functions, or `{label: policy}`. means `[K]`: play under
    this fixed truth instead of one drawn from the belief. per_period: also the mean regret of each
    period. start: number of the first replication, so that a long run can be cut into blocks.
    outcomes: play on these futures (fields with a leading axis over replications) instead of
    drawing any. steadied: also value and regret less the luck of each path, where that is known.
    progress: a bar on a terminal, lines now and then elsewhere (both on standard error; False:
    nothing). workers: threads (default: cores). client: a `distributed.Client`, to play on a Dask
    cluster instead of here; the numbers are the same.

    Returns an `xarray.Dataset`: value, reward, regret (policy, replication), pulls (policy,
    replication, arm); where arms are conjugate and nothing constrains play also steadied_value and
    steadied_regret, of the same means with a fraction of the spread; of particles also
    effective_sample_size, the least that a decision of the replication was made with. Memory for
    futures is bounded: they are drawn and dropped chunk by chunk.
    """
    from irsppl.results import simulation_dataset

    check_bandit(bandit)
    check_run(progress, workers)
    check_client(client)
    check_flag("per_period", per_period)
    check_flag("steadied", steadied)
    bandit.check_open()
    named = name_policies(policies)
    key = as_key(key)
    if outcomes is not None:
        num_replications = _check_outcomes(bandit, outcomes, means)
    num_replications = as_count("num_replications", num_replications, maximum=MOST_FUTURES)
    first = as_count("start", start, minimum=0, maximum=2**32 - num_replications)
    if bandit.pending and not bandit.arrivals.late:
        raise ValueError(
            f"simulate needs the rewards of all pulls, but {list(bandit.pending)} are pending and "
            "no delay says when they arrive: let them arrive first, or give the bandit a delay"
        )
    if per_period and (bandit.access.binds or bandit.end.binds):
        # Each pull is compared with the best arm, which must be open then.
        limit = bandit.access if bandit.access.binds else bandit.end
        why = "per_period needs as many pulls, of any arm, in every replication: not so with a"
        raise ValueError(f"{why} {limit.name}")
    if means is not None:
        means = as_floats("means", means)
        if means.shape != (bandit.num_arms,):
            raise ValueError(f"means must have {bandit.num_arms} entries, got {means.shape[0]}")
        require_finite("means", means)
        bandit.belief.sample_rewards_at(jax.random.key(0), means, 1)  # refuses before any work
    named = {label: find_policy(policy, bandit).begun(bandit) for label, policy in named.items()}
    if isinstance(bandit.belief, Upkeep):
        bandit.belief.check_resolution(int(bandit.remaining))
    if means is None and outcomes is None:
        warn_of_tails(bandit)
    if not bandit.arrivals.late:
        bandit = bandit.trimmed(int(bandit.remaining))
    steady = steadied and means is None and outcomes is None and can_replay(bandit)
    total, news = num_replications, News(bandit) if steady else None
    play = _Play(bandit, named, key, first, total, means, outcomes, per_period, news, workers)
    compiled = None not in play.kernels.values()
    title, plan = ", ".join(named)[:40], chunks(bandit, num_replications, compiled)
    if client is None:
        parts = play(plan, workers or os.cpu_count() or 1, progress, title)
    else:
        parts = spread(client, play, plan, progress, title)
    _tell_quality(list(named), parts)
    return simulation_dataset(bandit, list(named), parts, means)


@dataclasses.dataclass
class _Play:
    """All that the chunks of a simulation share; can be sent to another process."""

    bandit: Bandit
    policies: dict[str, Policy]
    key: Array
    first: int
    total: int
    means: Array | None
    outcomes: Outcome | None
    per_period: bool
    news: News | None
    workers: int | None
    # Made once, for they may plan ahead.
    players: list[Play] | None = None

    @functools.cached_property
    def kernels(self) -> dict[str, Kernel | None]:
        return {label: find_kernel(policy, self.bandit) for label, policy in self.policies.items()}

    def __getstate__(self) -> dict[str, Any]:
        """Without the kernels, which another process finds for itself."""
        return {name: value for name, value in vars(self).items() if name != "kernels"}

    def __call__(
        self,
        plan: Sequence[tuple[int, int, int]],
        threads: int,
        progress: bool | None = False,
        title: str = "",
    ) -> list[dict[str, np.ndarray]]:
        """What each chunk of the plan earned."""
        bandit, threads = self.bandit, self.workers or threads
        compiled = None not in self.kernels.values()
        across = threads_for(bandit, compiled and not bandit.constraints, threads)
        if self.players is None:
            # Where futures and inner values are XLA programs, only a chunk's paths share cores.
            within = 1 if across > 1 else threads
            self.players = [
                player(policy, bandit, self.key, label, self.total, self.kernels[label], within)
                for label, policy in self.policies.items()
            ]
        return run_chunks(self._draw, self._work, list(plan), progress, title, across)

    def _draw(self, start: int, stop: int, size: int) -> Outcome:
        if self.outcomes is None:
            return draw_outcomes(self.bandit, self.key, self.first + start, size, self.means)
        rows_of = np.minimum(np.arange(start, start + size), stop - 1)
        return jax.tree.map(lambda field: np.asarray(field)[rows_of], self.outcomes)

    def _work(self, futures: Outcome, start: int, stop: int) -> dict[str, np.ndarray]:
        assert self.players is not None
        bandit, count = self.bandit, stop - start
        best = find_penalty("ts").values(bandit, futures)[:count]
        truth = np.asarray(futures.means, np.float64)[:count]
        rewards = np.asarray(after_pending_batch(bandit, futures.rewards))
        rows = []
        for play in self.players:
            played = play(futures, self.first + start, count)
            actions = played.arms[:, : int(bandit.remaining)]
            rows.append(_account(actions, truth, rewards, best, self.per_period))
            if isinstance(bandit.belief, Cloud):  # how good the clouds were, and whether they moved
                rows[-1]["ess"] = np.full(count, np.nan) if played.ess is None else played.ess
                rows[-1]["poor"] = np.zeros(count, bool) if played.poor is None else played.poor
                rows[-1]["moved"] = np.full(count, played.moved)
            if self.news is not None:
                rows[-1]["news"] = self.news(futures, actions)
        return {name: np.stack([row[name] for row in rows]) for name in rows[0]}


def _tell_quality(labels: list[str], parts: list[dict[str, np.ndarray]]) -> None:
    """Warn of clouds that did not represent their posteriors."""
    if "ess" not in parts[0]:
        return
    for i, label in enumerate(labels):
        ess, poor, moved = (
            np.concatenate([part[name][i] for part in parts]) for name in ("ess", "poor", "moved")
        )
        if poor.any():
            warn_simulated(label, ess, poor, bool(moved.all()))


def _check_outcomes(bandit: Bandit, outcomes: Outcome, means: Any) -> int:
    """How many futures were given; raises if they do not fit the bandit."""
    if not isinstance(outcomes, Outcome):
        raise ValueError(f"outcomes must be an irsppl.Outcome of many futures, got {outcomes!r}")
    shape = np.shape(outcomes.rewards)
    wanted = (bandit.num_arms, bandit.size if bandit.arrivals.late else int(bandit.remaining))
    if len(shape) != 3 or shape[1:] != wanted or np.shape(outcomes.means) != shape[:2]:
        raise ValueError(
            f"outcomes must hold means [S, {wanted[0]}] and rewards [S, {wanted[0]}, {wanted[1]}], "
            f"got {np.shape(outcomes.means)} and {shape}"
        )
    if means is not None:
        raise ValueError("means and outcomes cannot both be given: outcomes have means already")
    for constraint in bandit.limits:
        if constraint.draws and getattr(outcomes, constraint.draws) is None:
            raise ValueError(f"outcomes must have {constraint.draws} for a bandit like this one")
    bandit.belief.check_reward(np.arange(bandit.num_arms)[None, :, None], outcomes.rewards)
    bandit.check_futures(outcomes)
    truth, ends = np.asarray(outcomes.means, np.float64), bandit.belief.reward_range()
    low, high = (-np.inf, np.inf) if ends is None else (np.asarray(end) for end in ends)
    slack = 1e-6 * (1 + np.abs(truth))
    if not np.all((truth >= low - slack) & (truth <= high + slack)):
        raise ValueError(
            f"outcomes: means must be numbers, and lie between the least and the largest reward, "
            f"{low} and {high}, got {truth.min():g} to {truth.max():g}"
        )
    return shape[0]


def _account(
    actions: np.ndarray, means: np.ndarray, rewards: np.ndarray, best: np.ndarray, per_period: bool
) -> dict[str, np.ndarray]:
    """What a chunk of paths earned: value, reward, regret [S], pulls [S, K], period sums [2, T]."""
    num_arms = means.shape[1]
    pulls = np.stack([(actions == arm).sum(axis=1) for arm in range(num_arms)], axis=1)
    value = (pulls * means).sum(axis=1)
    so_far = np.cumsum(rewards[: len(pulls)], axis=2, dtype=np.float64)
    earned = np.pad(so_far, ((0, 0), (0, 0), (1, 0)))
    reward = np.take_along_axis(earned, pulls[:, :, None], axis=2)[:, :, 0].sum(axis=1)
    row = {"value": value, "reward": reward, "regret": best - value, "pulls": pulls}
    if per_period:
        lost = means.max(axis=1)[:, None] - np.take_along_axis(means, actions.astype(int), axis=1)
        row["period"] = np.stack([lost.sum(axis=0), (lost**2).sum(axis=0)])
    return row
