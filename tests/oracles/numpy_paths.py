"""A careful NumPy implementation, one path at a time: the baseline of the benchmarks.

Vectorised over arms and over the sampled future; no compiled code of our own. Correct first, then
as fast as NumPy reasonably goes:

- V-Zero: the max-plus chain works on blocks of a strided (Toeplitz) view with preallocated
  buffers; the last arm needs one output only, and pull counts are read by walking back along one
  diagonal, so no argmax table is kept.
- Index, as printed: every arm's lambda is bisected at once, on the whole future. With shortcuts:
  all arms are tried against one common lambda that is bisected until one arm is left (only
  the winner matters). Along a Bernoulli future the CDF and the density at lambda follow from
  cumulative sums, without incomplete Beta functions. The benefit phi is first evaluated on the
  first `BLOCK` steps of the future, which settles most arms; the rest is looked at (and drawn)
  only for arms that are still open.

Priors are `paper.Bernoulli` and `paper.Gaussian`; only their arrays are used.
"""

import time

import numpy as np
from numpy.lib.stride_tricks import as_strided
from scipy import special

from . import paper

BLOCK = 48  # steps of the future that the index looks at first
ROWS = 128  # rows of the max-plus block
BISECTIONS = 50


class _BernoulliState:
    """Current alpha, beta `[K]` and what the rules need to know of them."""

    def __init__(self, prior):
        self.alpha, self.beta = prior.alpha.copy(), prior.beta.copy()

    def update(self, arm, reward):
        self.alpha[arm] += reward
        self.beta[arm] += 1 - reward

    def mean(self):
        return self.alpha / (self.alpha + self.beta)

    def sample_means(self, rng):
        return rng.beta(self.alpha, self.beta)

    def sample_final_means(self, rng, n):
        """mu_hat_{a,n} `[K]` of a sampled future: the sum of n rewards is binomial."""
        wins = rng.binomial(n, rng.beta(self.alpha, self.beta))
        return (self.alpha + wins) / (self.alpha + self.beta + n)

    def sample_mean_paths(self, rng, n):
        """mu_hat_{a,0:n} of a sampled future, `[K, n + 1]`."""
        out = np.empty((len(self.alpha), n + 1))
        theta = rng.beta(self.alpha, self.beta)
        out[:, 0] = 0.0
        np.cumsum(rng.random((len(theta), n)) < theta[:, None], axis=1, out=out[:, 1:])
        out += self.alpha[:, None]
        out /= (self.alpha + self.beta)[:, None] + np.arange(n + 1)
        return out

    def future(self, rng, horizon):
        return _BernoulliFuture(self, rng, horizon)


class _GaussianState:
    """Current mean, precision `[K]` and what the rules need to know of them."""

    def __init__(self, prior):
        self.location = prior.prior_mean.copy()
        self.precision = prior.sd**-2.0
        self.noise_sd = prior.noise_sd
        self.noise_precision = prior.noise_sd**-2.0

    def update(self, arm, reward):
        after = self.precision[arm] + self.noise_precision[arm]
        step = self.noise_precision[arm] * (reward - self.location[arm]) / after
        self.location[arm] += step
        self.precision[arm] = after

    def mean(self):
        return self.location

    def sample_means(self, rng):
        return self.location + rng.standard_normal(len(self.location)) / np.sqrt(self.precision)

    def sample_final_means(self, rng, n):
        """mu_hat_{a,n} `[K]` of a sampled future: normal, so one draw is enough."""
        gained = 1 / self.precision - 1 / (self.precision + n * self.noise_precision)
        return self.location + np.sqrt(gained) * rng.standard_normal(len(self.location))

    def sample_mean_paths(self, rng, n):
        """mu_hat_{a,0:n} of a sampled future, `[K, n + 1]`."""
        arms = len(self.location)
        theta = self.sample_means(rng)
        rewards = rng.standard_normal((arms, n))
        rewards *= self.noise_sd[:, None]
        rewards += theta[:, None]
        out = np.empty((arms, n + 1))
        out[:, 0] = 0.0
        np.cumsum(rewards, axis=1, out=out[:, 1:])
        out *= self.noise_precision[:, None]
        out += (self.location * self.precision)[:, None]
        out /= self.precision[:, None] + self.noise_precision[:, None] * np.arange(n + 1)
        return out

    def future(self, rng, horizon):
        return _GaussianFuture(self, rng, horizon)


# --- TS, IRS.FH, IRS.V-Zero ---------------------------------------------------------------


def _ts(state, remaining, rng, work):
    return state.sample_means(rng).argmax()


def _fh(state, remaining, rng, work):
    return state.sample_final_means(rng, remaining - 1).argmax()


def _v_zero(state, remaining, rng, work):
    means = state.sample_mean_paths(rng, remaining - 1)
    return allocate(means, work)[1].argmax()


class Workspace:
    """Buffers for horizons up to `horizon` and `num_arms` arms."""

    def __init__(self, num_arms, horizon, dtype=np.float64):
        self.sums = np.zeros((num_arms, horizon + 1), dtype)
        self.chain = np.empty((num_arms, horizon + 1), dtype)
        rows = min(ROWS, horizon + 1)
        padded = np.full(2 * horizon + 1, -np.inf, dtype)
        step = padded.strides[0]
        self.x = padded[horizon:]
        # shifted[m, n] = x[n - m], -inf where n < m: a view that reads the padding left of x
        self.shifted = as_strided(self.x, (rows, horizon + 1), (-step, step))
        self.block = np.empty((rows, horizon + 1), dtype)
        self.row = np.empty(horizon + 1, dtype)


def allocate(means, work=None):
    """(value, pulls `[K]`): the best allocation of T pulls.

    means : mu_hat_{a,0:T-1}, `[K, T]`; the n-th pull of arm a pays `means[a, n - 1]`.
    """
    arms, horizon = means.shape
    work = Workspace(arms, horizon) if work is None else work
    sums = work.sums[:, : horizon + 1]
    np.cumsum(means, axis=1, out=sums[:, 1:])
    chain = work.chain[:, : horizon + 1]
    chain[0] = sums[0]
    for a in range(1, arms - 1):
        _max_plus(chain[a - 1], sums[a], chain[a], work)
    pulls, left = np.zeros(arms, int), horizon
    value = chain[0, horizon]
    for a in range(arms - 1, 0, -1):
        total = chain[a - 1, left::-1] + sums[a, : left + 1]
        m = total.argmax()
        if a == arms - 1:
            value = total[m]
        pulls[a] = m
        left -= m
    pulls[0] = left
    return float(value), pulls


def _max_plus(x, y, out, work):
    """out[n] = max over m of x[n - m] + y[m]; all `[T + 1]`."""
    size = len(x)
    work.x[:size] = x
    out.fill(-np.inf)
    for start in range(0, size, ROWS):
        rows, width = min(ROWS, size - start), size - start
        block = work.block[:rows, :width]
        np.add(work.shifted[:rows, :width], y[start : start + rows, None], out=block)
        row = np.maximum.reduce(block, axis=0, out=work.row[:width])
        np.maximum(out[start:], row, out=out[start:])


# --- IRS.Index ----------------------------------------------------------------------------


class _BernoulliFuture:
    """A sampled future of every arm, drawn in two pieces: `BLOCK` steps, then the rest."""

    bounded = True  # no index exceeds `top`
    top = 1.0

    def __init__(self, state, rng, horizon):
        self.state, self.rng, self.horizon = state, rng, horizon
        self.theta = rng.beta(state.alpha, state.beta)[:, None]
        self.log_norm = -special.betaln(state.alpha, state.beta)
        self.draws = rng.random((len(self.theta), min(BLOCK, horizon))) < self.theta
        self._tabulate()

    def extend(self):
        """Draw the rest of the future."""
        more = self.horizon - self.draws.shape[1]
        rest = self.rng.random((len(self.theta), more)) < self.theta
        self.draws = np.concatenate([self.draws, rest], axis=1)
        self._tabulate()

    def _tabulate(self):
        arms, steps = self.draws.shape
        wins = np.zeros((arms, steps + 1))
        np.cumsum(self.draws, axis=1, out=wins[:, 1:])
        count = np.arange(steps + 1)
        a = self.state.alpha[:, None] + wins
        total = (self.state.alpha + self.state.beta)[:, None] + count
        b = total - a
        self.a, self.b = a, b
        self.mean, self.inverse_total = a / total, 1 / total
        # The n-th reward moves F by -p/a (success) or +p/b (failure), log p by a known amount.
        used = np.where(self.draws, a[:, :-1], b[:, :-1])
        self.shift = np.where(self.draws, -1.0, 1.0) / used
        log_p = np.empty((arms, steps + 1))
        log_p[:, 0] = self.log_norm
        np.log(total[:, :-1] / used, out=log_p[:, 1:])
        self.log_coefficient = np.cumsum(log_p, axis=1, out=log_p)

    def steps(self):
        return self.draws.shape[1]

    def gamma(self, arms, lam):
        """E[max(mu, lam)] along the futures of `arms`, `[len(arms), steps + 1]`."""
        p = self.a[arms] * np.log(lam)
        p += self.b[arms] * np.log1p(-lam)
        p += self.log_coefficient[arms]
        np.exp(p, out=p)
        cdf = np.empty_like(p)
        level = np.ravel(lam)  # one lambda for all arms, or one for each
        cdf[:, 0] = special.betainc(self.state.alpha[arms], self.state.beta[arms], level)
        np.multiply(p[:, :-1], self.shift[arms], out=cdf[:, 1:])
        np.cumsum(cdf, axis=1, out=cdf)
        mean = self.mean[arms]
        cdf *= lam - mean
        cdf += mean
        p *= self.inverse_total[arms]
        cdf += p
        return cdf


class _GaussianFuture:
    """As `_BernoulliFuture`, for normal arms."""

    bounded = False

    def __init__(self, state, rng, horizon):
        self.state, self.rng, self.horizon = state, rng, horizon
        self.theta = state.sample_means(rng)[:, None]
        self.sums = np.zeros((len(self.theta), 1))
        self._draw(min(BLOCK, horizon))
        self.top = float(np.max(state.location + 3 / np.sqrt(state.precision)))

    def extend(self):
        """Draw the rest of the future."""
        self._draw(self.horizon - self.steps())

    def _draw(self, steps):
        draws = self.rng.standard_normal((len(self.theta), steps))
        draws *= self.state.noise_sd[:, None]
        draws += self.theta
        sums = np.concatenate([self.sums[:, -1:], draws], axis=1)
        np.cumsum(sums, axis=1, out=sums)
        self.sums = np.concatenate([self.sums[:, :-1], sums], axis=1)
        state = self.state
        precision = state.noise_precision[:, None] * np.arange(self.sums.shape[1])
        precision += state.precision[:, None]
        self.mean = self.sums * state.noise_precision[:, None]
        self.mean += (state.location * state.precision)[:, None]
        self.mean /= precision
        self.root_precision = np.sqrt(precision)

    def steps(self):
        return self.sums.shape[1] - 1

    def gamma(self, arms, lam):
        """E[max(mu, lam)] along the futures of `arms`, `[len(arms), steps + 1]`."""
        mean, root = self.mean[arms], self.root_precision[arms]
        gap = lam - mean
        z = gap * root
        out = special.ndtr(z)
        out *= gap
        out += mean
        z *= z
        z *= -0.5
        np.exp(z, out=z)
        z *= 1 / np.sqrt(2 * np.pi)
        z /= root
        out += z
        return out


def _settle(future, arms, lam):
    """Which `arms` are worth trying against lam (phi >= 0), and which cannot be told yet.

    v(n) = (T - n)(lam - min Gamma) + S_n is at most S_n, which decreases in n; so a prefix that
    reaches the threshold proves "worth trying" and one whose S_n has fallen below it disproves it.
    """
    horizon, steps = future.horizon, future.steps()
    gamma = future.gamma(arms, lam)
    threshold = horizon * (lam - gamma[:, 0])
    total = future.mean[arms, :-1] - gamma[:, :-1]
    np.cumsum(total, axis=1, out=total)
    lowest = np.minimum.accumulate(gamma, axis=1, out=gamma)[:, 1:]
    np.subtract(lam, lowest, out=lowest)
    lowest *= np.arange(horizon - 1, horizon - steps - 1, -1.0)
    lowest += total
    worth = lowest.max(axis=1) >= threshold
    if steps == horizon:
        return worth, np.zeros_like(worth)
    return worth, ~worth & (total[:, -1] >= threshold)


def _worth_trying(future, arms, lam):
    worth, open_ = _settle(future, arms, lam)
    if open_.any():
        future.extend()
        worth[open_] = _settle(future, arms[open_], lam)[0]
    return worth


def index_winner(future, means):
    """Arm with the largest index: bisect one lambda for all arms until a single one is left."""
    low, high = float(means.max()), future.top
    arms = np.arange(len(means))
    if future.horizon == 1:
        return int(means.argmax())
    while not future.bounded:  # raise the top until no arm is worth trying there
        worth = _worth_trying(future, arms, high)
        if not worth.any():
            break
        arms, low, high = arms[worth], high, 2 * high - low
        if len(arms) == 1:
            return int(arms[0])
    for _ in range(BISECTIONS):
        middle = 0.5 * (low + high)
        if middle in (low, high):
            break
        worth = _worth_trying(future, arms, middle)
        if worth.any():
            arms, low = arms[worth], middle
            if len(arms) == 1:
                break
        else:
            high = middle
    return int(arms[0])


def _index(state, remaining, rng, work):
    return index_winner(state.future(rng, remaining), state.mean())


def _index_as_printed(state, remaining, rng, work):
    """The paper's algorithm: each arm's own lambda by bisection, the whole benefit every time.

    Vectorised over arms and over the future; none of the shortcuts of `_index`.
    """
    future = state.future(rng, remaining)
    if future.steps() < remaining:
        future.extend()
    arms = np.arange(len(state.mean()))
    low = state.mean().astype(float)
    high = np.full(len(arms), future.top)
    if not future.bounded:  # 6 posterior standard deviations: phi < 0 there for any T < 1e8
        high = low + 6 / np.sqrt(state.precision)
    left = np.arange(remaining - 1, -1, -1.0)
    for _ in range(40):  # to 1e-12 of the bracket
        lam = 0.5 * (low + high)[:, None]
        gamma = future.gamma(arms, lam)
        earned = np.cumsum(future.mean[:, :-1] - gamma[:, :-1], axis=1)
        lowest = np.minimum.accumulate(gamma, axis=1)[:, 1:]
        benefit = (left * (lam - lowest) + earned).max(axis=1)
        worth = benefit >= remaining * (lam[:, 0] - gamma[:, 0])
        low, high = np.where(worth, lam[:, 0], low), np.where(worth, high, lam[:, 0])
    return int(np.argmax(low))


RULES = {
    "ts": _ts,
    "irs.fh": _fh,
    "irs.v-zero": _v_zero,
    "irs.index": _index_as_printed,
    "irs.index, with shortcuts": _index,
}


def simulate_path(rule, prior, means, rewards, rng, dtype=np.float64):
    """Arms pulled `[T]` when the named rule plays against (means `[K]`, rewards `[K, T]`).

    prior : `paper.Bernoulli` or `paper.Gaussian`. dtype : of the max-plus chain of V-Zero.
    """
    rewards = np.asarray(rewards)
    arms, horizon = rewards.shape
    bernoulli = isinstance(prior, paper.Bernoulli)
    state = _BernoulliState(prior) if bernoulli else _GaussianState(prior)
    choose = RULES[rule]
    work = Workspace(arms, horizon, dtype) if rule == "irs.v-zero" else None
    pulls = [0] * arms
    actions = np.empty(horizon, int)
    for t in range(horizon):
        arm = int(choose(state, horizon - t, rng, work))
        state.update(arm, rewards[arm, pulls[arm]])
        pulls[arm] += 1
        actions[t] = arm
    return actions


def time_per_path(
    rule, family="bernoulli", num_arms=10, horizon=500, paths=3, seed=0, dtype=np.float64
):
    """Seconds per path, the mean over `paths` paths after one warm-up path."""
    rng = np.random.default_rng(seed)
    ones = np.ones(num_arms)
    prior = (
        paper.Bernoulli(ones, ones)
        if family == "bernoulli"
        else paper.Gaussian(0 * ones, ones, ones)
    )
    clock = 0.0
    for path in range(paths + 1):
        means = prior.sample_means(rng)
        if family == "bernoulli":
            rewards = (rng.random((num_arms, horizon)) < means[:, None]).astype(float)
        else:
            rewards = means[:, None] + rng.standard_normal((num_arms, horizon))
        start = time.perf_counter()
        simulate_path(rule, prior, means, rewards, rng, dtype)
        if path:
            clock += time.perf_counter() - start
    return clock / paths
