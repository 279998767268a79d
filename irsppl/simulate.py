"""Replications of policies on shared random futures, and single decisions."""

from __future__ import annotations

import itertools
import os
import zlib
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from irsppl._checks import as_count, as_floats, as_key, require_finite
from irsppl.bandit import Bandit, advance, advance_unseen, deliver
from irsppl.engine import kernel as find_kernel
from irsppl.outcomes import Outcome
from irsppl.penalties import after_pending_batch, find_penalty, pending_of, ready
from irsppl.policies import DecisionKernel, Policy, find_policy

# Rewards of one chunk of replications take at most about this much memory.
_CHUNK_BYTES = 64 * 2**20
_LARGEST_CHUNK = 1024
# In JAX the horizon is cut into segments of falling array size (see the design notes in docs).
_SEGMENTS = 4
# Decisions of `action_probabilities` made side by side.
_BATCH = 64


# ------------------------------------------------------------------ one decision


@eqx.filter_jit
def _decide(policy: Policy, key: Array, bandit: Bandit) -> Array:
    return policy(key, bandit)


def choose(bandit: Bandit, policy: Any, key: Any = 0) -> int:
    """The arm to pull now; -1 to stop, where a budget allows it."""
    policy = find_policy(policy)
    bandit.check_open()
    policy.verify(bandit)
    bandit = bandit._without_record()
    kernel = _decision_kernel(policy, bandit)
    if kernel is not None:
        return int(kernel(_streams(as_key(key), policy.name, 0, 1))[0])
    decide = _decide if policy.traceable else lambda p, k, b: p(k, b)
    return int(decide(policy, as_key(key), bandit))


@eqx.filter_jit
def _decide_many(policy: Policy, keys: Array, bandit: Bandit) -> Array:
    arms = jax.lax.map(jax.vmap(lambda key: policy(key, bandit)), keys)
    return arms.ravel()


def action_probabilities(
    bandit: Bandit, policy: Any, key: Any = 0, num_samples: int = 1000
) -> Float[np.ndarray, " K"]:
    """Probability that the policy pulls each arm now: its propensities.

    Exact for a deterministic policy, otherwise the share of `num_samples` sampled decisions. Where
    a budget allows to stop, what is missing to 1 is the probability of that.
    """
    policy = find_policy(policy)
    num_samples = as_count("num_samples", num_samples)
    if policy.deterministic:
        arm = choose(bandit, policy, key)
        return np.eye(bandit.num_arms)[arm] if arm >= 0 else np.zeros(bandit.num_arms)
    bandit.check_open()
    policy.verify(bandit)
    bandit = bandit._without_record()
    key = as_key(key)
    kernel = _decision_kernel(policy, bandit)
    if kernel is not None:
        arms = kernel(_streams(key, policy.name, 0, num_samples))
    else:
        keys = jax.random.split(key, (-(-num_samples // _BATCH), _BATCH))  # the last ones surplus
        arms = np.asarray(_decide_many(policy, keys, bandit))[:num_samples]
    return np.bincount(arms[arms >= 0], minlength=bandit.num_arms) / num_samples


def _has_kernels(bandit: Bandit) -> bool:
    """Whether a policy's own CPU kernels apply: they know nothing of constraints."""
    return jax.default_backend() == "cpu" and not bandit.constraints


def _decision_kernel(policy: Policy, bandit: Bandit) -> DecisionKernel | None:
    kernel = None
    if _has_kernels(bandit) and not bandit.pending:
        kernel = policy.decisions(bandit)
    if kernel is None:
        found = find_kernel(policy, bandit)
        kernel = None if found is None else found.decisions
    return kernel


# ------------------------------------------------------------------ futures


def _outcome_key(key: Array) -> Array:
    return jax.random.fold_in(key, 0)


@eqx.filter_jit
def _draw(bandit: Bandit, key: Array, numbers: Int[Array, " S"], means: Array | None) -> Outcome:
    def one(number: Array) -> Outcome:
        own = jax.random.fold_in(key, number)
        if means is None:
            return bandit.sample_truth(own)
        rewards = bandit.belief.sample_rewards_at(own, means, bandit.horizon)
        return bandit._complete(own, Outcome(means, rewards), running=False)

    return jax.vmap(one)(numbers)


def draw_outcomes(
    bandit: Bandit, key: Array, start: int, count: int, means: Array | None = None
) -> Outcome:
    """Futures number start, ..., start + count - 1, stacked; number s depends on (key, s) only."""
    numbers = jnp.arange(start, start + count, dtype=jnp.uint32)
    return _draw(bandit, _outcome_key(key), numbers, means)


def chunks(bandit: Bandit, total: int) -> list[tuple[int, int, int]]:
    """(start, stop, size) of each chunk: `size` futures are drawn, the last ones may be surplus."""
    itemsize = bandit.belief.predictive_mean().dtype.itemsize
    each = bandit.belief.footprint(bandit.horizon) * itemsize
    size = max(1, min(_LARGEST_CHUNK, _CHUNK_BYTES // each))
    size = min(size, max(1, -(-total // 2)))  # two chunks at least, for two cores
    return [(start, min(start + size, total), size) for start in range(0, total, size)]


def threads_for(bandit: Bandit, compiled: bool, workers: int | None) -> int | None:
    """How many threads may work: several only where CPU kernels do it, not XLA."""
    return workers if compiled and bandit.belief.kernel_state() is not None else 1


def run_chunks(
    work: Callable[[int, int, int], Any],
    plan: list[tuple[int, int, int]],
    progress: bool,
    title: str,
    workers: int | None = None,
) -> list[Any]:
    """`work` on every chunk, in threads (compiled kernels release the GIL), in order of chunks.

    workers must be 1 where the work is XLA programs with loops: on a CPU they run on one pool of
    threads, and two of them at once can wait for each other for ever (see `threads_for`).
    """
    from tqdm.auto import tqdm

    workers = workers or os.cpu_count() or 1
    done: list[Any] = [None] * len(plan)
    # A caller's `with jax.enable_x64()` holds for its own thread only.
    wide = jax.config.read("jax_enable_x64")

    def in_thread(*chunk: int) -> Any:
        with jax.enable_x64(wide):
            return work(*chunk)

    with (
        tqdm(total=plan[-1][1], desc=title, unit="rep", disable=not progress) as bar,
        ThreadPoolExecutor(min(workers, len(plan))) as pool,
    ):
        futures = {pool.submit(in_thread, *chunk): i for i, chunk in enumerate(plan)}
        try:
            for future in as_completed(futures):
                i = futures[future]
                done[i] = future.result()
                bar.update(plan[i][1] - plan[i][0])
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return done


# ------------------------------------------------------------------ whole paths in JAX


def segments(horizon: int, grows: bool) -> list[tuple[int, int]]:
    """(array size, periods) of each segment of a path."""
    if not grows or horizon < 4 * _SEGMENTS:
        return [(horizon, horizon)]
    cuts = [round(horizon * (1 - i / _SEGMENTS)) for i in range(_SEGMENTS + 1)]
    return [(size, size - following) for size, following in itertools.pairwise(cuts)]


@eqx.filter_jit
def _play(
    policy: Policy, bandit: Bandit, rewards: Float[Array, "S K T"], keys: Array
) -> Int[Array, "S T"]:
    """The arms that the policy pulls along given true rewards."""

    def one(rewards: Array, key: Array) -> Array:
        state = eqx.tree_at(lambda b: b.belief, bandit, bandit.belief.for_simulation())
        played: list[Array] = []
        for size, length in segments(bandit.horizon, policy.grows):
            state = state._shrunk(size)
            dynamic, static = eqx.partition(state, eqx.is_array)

            def step(dynamic: Any, t: Array, static: Any = static) -> tuple[Any, Array]:
                state = eqx.combine(dynamic, static)
                arm = policy(jax.random.fold_in(key, t), state)
                reward = rewards[arm, state.counts[arm] - bandit.counts[arm]]
                return eqx.filter(advance(state, arm, reward), eqx.is_array), arm

            first = sum(part.shape[0] for part in played)
            dynamic, arms = jax.lax.scan(step, dynamic, jnp.arange(first, first + length))
            state = eqx.combine(dynamic, static)
            played.append(arms)
        return jnp.concatenate(played).astype(jnp.int16)

    return jax.vmap(one)(rewards, keys)


@eqx.filter_jit
def _play_constrained(
    policy: Policy, bandit: Bandit, outcomes: Outcome, keys: Array
) -> Int[Array, "S T"]:
    """The same where rewards come late, pulls cost money or play may end: -1 where none is made."""
    waiting = pending_of(bandit)

    def one(outcome: Outcome, key: Array) -> Array:
        state = eqx.tree_at(lambda b: b.belief, bandit, bandit.belief.for_simulation())
        due, owed = _pending_rewards(bandit, outcome)
        dynamic, static = eqx.partition(state, eqx.is_array)

        def step(carry: Any, t: Array) -> tuple[Any, Array]:
            dynamic, due, owed, playing = carry
            state = eqx.combine(dynamic, static)
            if bandit.delay is not None:
                state = _deliver_due(state, due, owed)
            arm = policy(jax.random.fold_in(key, t), state).astype(jnp.int32)
            playing = playing & (state.remaining > 0) & (arm >= 0)
            if state.purse is not None:
                playing = playing & state.purse.affordable()[arm]
            column = waiting[arm] + state.counts[arm] - bandit.counts[arm]
            reward = outcome.rewards[arm, column]
            if bandit.delay is None:
                after = advance(state, arm, reward)
            else:
                assert outcome.delays is not None
                late = state.period + outcome.delays[arm, column] + 1
                due, owed = due.at[state.period].set(late), owed.at[state.period].set(reward)
                after = advance_unseen(state, arm)
            moved, stayed = (eqx.filter(x, eqx.is_array) for x in (after, state))
            dynamic = jax.tree.map(lambda a, b: jnp.where(playing, a, b), moved, stayed)
            return (dynamic, due, owed, playing), jnp.where(playing, arm, -1)

        start = (dynamic, due, owed, jnp.asarray(True))
        _, arms = jax.lax.scan(step, start, jnp.arange(bandit.horizon))
        if outcome.periods is not None:
            arms = jnp.where(jnp.arange(bandit.horizon) < outcome.periods, arms, -1)
        return arms.astype(jnp.int16)

    return jax.vmap(one)(outcomes, keys)


def _pending_rewards(bandit: Bandit, outcome: Outcome) -> tuple[Array, Array]:
    """By number of the pull: the period from which its reward is known, and the reward."""
    if bandit.delay is None or bandit.pulled is None or bandit.seen is None:
        return jnp.zeros(0, jnp.int32), jnp.zeros(0, outcome.rewards.dtype)
    size = bandit.pulled.shape[0]
    arms = jnp.maximum(bandit.pulled, 0)
    pending = (bandit.pulled >= 0) & ~bandit.seen
    same = (bandit.pulled[None, :] == bandit.pulled[:, None]) & pending[None, :]
    earlier = jnp.arange(size)[None, :] < jnp.arange(size)[:, None]
    column = jnp.sum(same & earlier, axis=1)
    column = jnp.minimum(column, outcome.rewards.shape[1] - 1)
    when = bandit.period + ready(bandit, outcome.delays, outcome.rewards.shape[1])[arms, column]
    return when, outcome.rewards[arms, column]


def _deliver_due(state: Bandit, due: Array, owed: Array) -> Bandit:
    """Every reward that is due by now reaches the belief, in the order of the pulls."""
    dynamic, static = eqx.partition(state, eqx.is_array)

    def waiting(state: Bandit) -> Array:
        assert state.pulled is not None and state.seen is not None
        return (state.pulled >= 0) & ~state.seen & (due <= state.period)

    def more(dynamic: Any) -> Array:
        return jnp.any(waiting(eqx.combine(dynamic, static)))

    def one(dynamic: Any) -> Any:
        state = eqx.combine(dynamic, static)
        pull = jnp.argmax(waiting(state))
        return eqx.filter(deliver(state, pull, owed[pull]), eqx.is_array)

    return eqx.combine(jax.lax.while_loop(more, one, dynamic), static)


def _key_words(key: Array) -> tuple[int, int]:
    first, *_, last = np.asarray(jax.random.key_data(key)).ravel().tolist()
    return first, last


def label_hash(label: str) -> int:
    """A policy's own number, from its label alone (stable between runs and machines)."""
    return zlib.crc32(label.encode())


def _streams(key: Array, label: str, start: int, count: int) -> np.ndarray:
    """Seeds of the kernels, one for each replication."""
    from irsppl.inner.cpu.rng import streams

    return streams(_key_words(key), label_hash(label), start, count)


def _path_kernel(
    policy: Policy, bandit: Bandit, threads: int = 1
) -> Callable[[Outcome, np.ndarray], Int[np.ndarray, "S T"]] | None:
    """A compiled function (futures, seeds) -> arms played, or None."""
    own = policy.paths(bandit) if _has_kernels(bandit) or not policy.traceable else None
    if own is not None:
        return lambda futures, seeds: own(np.asarray(futures.rewards), seeds)
    found = find_kernel(policy, bandit)
    if found is None:
        return None
    return lambda futures, seeds: found.paths(
        np.asarray(futures.rewards), seeds, futures.delays, futures.periods, threads
    )


def _player(
    policy: Policy, bandit: Bandit, key: Array, label: str, threads: int
) -> Callable[[Outcome, int], Int[np.ndarray, "S T"]]:
    """A function (futures, number of the first replication) -> arms played."""
    kernel = _path_kernel(policy, bandit, threads)
    if kernel is not None:

        def play(futures: Outcome, start: int) -> np.ndarray:
            arms = kernel(futures, _streams(key, label, start, len(futures.rewards)))
            if futures.periods is None:
                return arms
            played = np.arange(arms.shape[1])[None, :] < np.asarray(futures.periods)[:, None]
            return np.where(played, arms, -1)

        return play
    stream = jax.random.fold_in(jax.random.fold_in(key, 1), label_hash(label))

    def play_traced(futures: Outcome, start: int) -> np.ndarray:
        numbers = jnp.arange(start, start + len(futures.rewards), dtype=jnp.uint32)
        keys = jax.vmap(lambda s: jax.random.fold_in(stream, s))(numbers)
        if bandit.constraints:
            futures = futures.bare()
            return np.asarray(_play_constrained(policy, bandit, futures, keys))
        return np.asarray(_play(policy, bandit, jnp.asarray(futures.rewards), keys))

    return play_traced


# ------------------------------------------------------------------ simulate


def name_policies(policies: Any) -> dict[str, Policy]:
    """{label: policy} from a name, a policy, a list of them, or such a mapping."""
    if isinstance(policies, Mapping):
        items = [(str(label), policy) for label, policy in policies.items()]
    else:
        single = isinstance(policies, (str, Policy)) or not isinstance(policies, Iterable)
        items = []
        for policy in [policies] if single else policies:
            found = find_policy(policy)
            if isinstance(policy, str):
                label = policy
            else:
                inner = getattr(found, "function", None)
                label = getattr(inner, "__name__", None) or _describe(found)
            items.append((label, policy))
    if not items:
        raise ValueError("policies must name at least one policy")
    labels = [label for label, _ in items]
    twice = sorted({label for label in labels if labels.count(label) > 1})
    if twice:
        raise ValueError(f"policies has the label {twice[0]!r} twice: give {{label: policy}}")
    return {label: find_policy(policy) for label, policy in items}


def _describe(policy: Policy) -> str:
    penalty = getattr(policy, "penalty", None)
    if penalty is not None:
        return penalty.label
    fields = {
        name: value
        for name, value in vars(policy).items()
        if isinstance(value, (bool, int, float, str))
    }
    told = ", ".join(f"{name}={value}" for name, value in fields.items())
    return f"{policy.name}({told})" if told else policy.name


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
    progress: bool | None = None,
    workers: int | None = None,
) -> Any:
    """Play every policy on the same random futures.

    policies: a list of names, policies or functions, or `{label: policy}`. means `[K]`: play under
    this fixed truth instead of one drawn from the belief. per_period: also the mean regret of each
    period. start: number of the first replication, so that a long run can be cut into blocks.
    outcomes: play on these futures (fields with a leading axis over replications) instead of
    drawing any. progress: a progress bar (default: on a terminal). workers: threads (default:
    cores).

    Returns an `xarray.Dataset`: value, reward, regret (policy, replication), pulls (policy,
    replication, arm). Memory for futures is bounded: they are drawn and dropped chunk by chunk.
    """
    from irsppl.results import simulation_dataset

    bandit.check_open()
    named = name_policies(policies)
    key = as_key(key)
    if outcomes is not None:
        num_replications = _check_outcomes(bandit, outcomes, means)
    num_replications = as_count("num_replications", num_replications)
    first = as_count("start", start, minimum=0)
    if bandit.pending and bandit.delay is None:
        raise ValueError(
            f"simulate needs the rewards of all pulls, but {list(bandit.pending)} are pending and "
            "no delay says when they arrive: let them arrive first, or give the bandit a delay"
        )
    if per_period and bandit.constraints - {"delay"}:
        raise ValueError(
            "per_period needs as many pulls in every replication: there is none with a "
            f"{sorted(bandit.constraints - {'delay'})[0]}"
        )
    if means is not None:
        means = as_floats("means", means)
        if means.shape != (bandit.num_arms,):
            raise ValueError(f"means must have {bandit.num_arms} entries, got {means.shape[0]}")
        require_finite("means", means)
        bandit.belief.sample_rewards_at(jax.random.key(0), means, 1)  # refuses before any work
    for policy in named.values():
        policy.verify(bandit)
    if bandit.delay is None:
        bandit = bandit._shrunk(int(bandit.remaining))
    compiled = all(_path_kernel(policy, bandit) is not None for policy in named.values())
    # Where futures and inner values are XLA programs, only the paths within a chunk share cores.
    cores = workers or os.cpu_count() or 1
    workers = threads_for(bandit, compiled and not bandit.constraints, workers)
    threads = cores if workers == 1 else 1
    players = [_player(policy, bandit, key, label, threads) for label, policy in named.items()]
    benchmark, periods = find_penalty("ts"), int(bandit.remaining)

    def work(start: int, stop: int, size: int) -> dict[str, np.ndarray]:
        if outcomes is None:
            futures = draw_outcomes(bandit, key, first + start, size, means)
        else:
            futures = jax.tree.map(lambda field: field[start:stop], outcomes)
        best = benchmark.values(bandit, futures)[: stop - start]
        truth = np.asarray(futures.means, np.float64)[: stop - start]
        rewards = np.asarray(after_pending_batch(bandit, futures.rewards))
        rows = [
            _account(
                player(futures, first + start)[: stop - start, :periods],
                truth,
                rewards,
                best,
                per_period,
            )
            for player in players
        ]
        return {name: np.stack([row[name] for row in rows]) for name in rows[0]}

    title = ", ".join(named)
    parts = run_chunks(work, chunks(bandit, num_replications), _show(progress), title[:40], workers)
    return simulation_dataset(bandit, list(named), parts, means)


def _check_outcomes(bandit: Bandit, outcomes: Outcome, means: Any) -> int:
    """How many futures were given; raises if they do not fit the bandit."""
    shape = np.shape(outcomes.rewards)
    wanted = (bandit.num_arms, bandit.horizon if bandit.delay else int(bandit.remaining))
    if len(shape) != 3 or shape[1:] != wanted or np.shape(outcomes.means) != shape[:2]:
        raise ValueError(
            f"outcomes must hold means [S, {wanted[0]}] and rewards [S, {wanted[0]}, {wanted[1]}], "
            f"got {np.shape(outcomes.means)} and {shape}"
        )
    if means is not None:
        raise ValueError("means and outcomes cannot both be given: outcomes have means already")
    for name, needed in (("delays", bandit.delay), ("periods", bandit.survivor)):
        if needed is not None and getattr(outcomes, name) is None:
            raise ValueError(f"outcomes must have {name} for a bandit like this one")
    return shape[0]


def _show(progress: bool | None) -> bool:
    if progress is None:
        import sys

        return sys.stderr.isatty()
    return progress


def _account(
    actions: np.ndarray, means: np.ndarray, rewards: np.ndarray, best: np.ndarray, per_period: bool
) -> dict[str, np.ndarray]:
    """What a chunk of paths earned: value, reward, regret [S], pulls [S, K], period sums [2, T]."""
    num_arms = means.shape[1]
    if actions.size and (actions.min() < -1 or actions.max() >= num_arms):
        raise ValueError(f"a policy pulled an arm outside 0..{num_arms - 1}")
    pulls = np.stack([(actions == arm).sum(axis=1) for arm in range(num_arms)], axis=1)
    value = (pulls * means).sum(axis=1)
    earned = np.concatenate(
        [np.zeros((*pulls.shape, 1)), np.cumsum(rewards[: len(pulls)], axis=2, dtype=np.float64)],
        axis=2,
    )
    reward = np.take_along_axis(earned, pulls[:, :, None], axis=2)[:, :, 0].sum(axis=1)
    row = {"value": value, "reward": reward, "regret": best - value, "pulls": pulls}
    if per_period:
        lost = means.max(axis=1)[:, None] - np.take_along_axis(means, actions.astype(int), axis=1)
        row["period"] = np.stack([lost.sum(axis=0), (lost**2).sum(axis=0)])
    return row
