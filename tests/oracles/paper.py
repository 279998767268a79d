"""The paper's pseudo-code in plain NumPy: one decision, one path at a time, loops and all.

A rule is a function `rule(remaining, prior, rng) -> arm`. Each IRS rule samples an outcome and
hands it to a function of the outcome alone (`fh_means`, `v_zero_allocation`, `v_emax_sequence`,
`index_value`), so that a faster solver can be compared on the same outcome without luck.

`remaining` (the paper's T) counts the periods that are left, this one included. Ties go to the
arm with the lowest index. Slips of the printed pseudo-code are corrected in place.
"""

import itertools
import math
from dataclasses import dataclass, replace

import numpy as np
from scipy import integrate, special


@dataclass(frozen=True)
class Bernoulli:
    """Beta-Bernoulli arms; alpha, beta `[K]`."""

    alpha: np.ndarray
    beta: np.ndarray

    def __post_init__(self):
        object.__setattr__(self, "alpha", np.array(self.alpha, float))
        object.__setattr__(self, "beta", np.array(self.beta, float))

    @property
    def num_arms(self):
        """K."""
        return len(self.alpha)

    def sample_means(self, rng):
        """mu_a(theta_a), `[K]`."""
        return np.array([rng.beta(a, b) for a, b in zip(self.alpha, self.beta, strict=True)])

    def sample_rewards(self, means, horizon, rng):
        """Rewards `[K, horizon]` given the means `[K]`."""
        return np.array([[float(rng.random() < m) for _ in range(horizon)] for m in means])

    def update(self, arm, reward):
        """The belief after one reward of one arm."""
        alpha, beta = self.alpha.copy(), self.beta.copy()
        alpha[arm] += reward
        beta[arm] += 1 - reward
        return Bernoulli(alpha, beta)

    def mean(self, arm):
        """Predictive mean of an arm."""
        return self.alpha[arm] / (self.alpha[arm] + self.beta[arm])

    def expected_max(self, arm, lam):
        """E[max(mu_a, lam)] (section IRS.Index)."""
        a, b, m = self.alpha[arm], self.beta[arm], self.mean(arm)
        x = min(max(lam, 0.0), 1.0)
        return lam * special.betainc(a, b, x) + m * (1 - special.betainc(a + 1, b, x))

    def cdf(self, arm, x):
        """P(mu_a <= x)."""
        return float(special.betainc(self.alpha[arm], self.beta[arm], x))

    def support(self):
        """Interval that holds every mean."""
        return 0.0, 1.0


@dataclass(frozen=True)
class Gaussian:
    """Normal arms of known noise; mean, sd, noise_sd `[K]`."""

    prior_mean: np.ndarray
    sd: np.ndarray
    noise_sd: np.ndarray

    def __post_init__(self):
        for name in ("prior_mean", "sd", "noise_sd"):
            object.__setattr__(self, name, np.array(getattr(self, name), float))

    @property
    def num_arms(self):
        """K."""
        return len(self.prior_mean)

    def sample_means(self, rng):
        """mu_a(theta_a), `[K]`."""
        return np.array([rng.normal(m, v) for m, v in zip(self.prior_mean, self.sd, strict=True)])

    def sample_rewards(self, means, horizon, rng):
        """Rewards `[K, horizon]` given the means `[K]`."""
        pairs = zip(means, self.noise_sd, strict=True)
        return np.array([[rng.normal(m, s) for _ in range(horizon)] for m, s in pairs])

    def update(self, arm, reward):
        """The belief after one reward of one arm."""
        mean, sd = self.prior_mean.copy(), self.sd.copy()
        before, noise = sd[arm] ** -2, self.noise_sd[arm] ** -2
        mean[arm] = (before * mean[arm] + noise * reward) / (before + noise)
        sd[arm] = (before + noise) ** -0.5
        return replace(self, prior_mean=mean, sd=sd)

    def mean(self, arm):
        """Predictive mean of an arm."""
        return self.prior_mean[arm]

    def expected_max(self, arm, lam):
        """E[max(mu_a, lam)] (section IRS.Index)."""
        m, v = self.prior_mean[arm], self.sd[arm]
        z = (lam - m) / v
        density = math.exp(-0.5 * z * z) / math.sqrt(2 * math.pi)
        return m + (lam - m) * special.ndtr(z) + v * density

    def cdf(self, arm, x):
        """P(mu_a <= x)."""
        return float(special.ndtr((x - self.prior_mean[arm]) / self.sd[arm]))

    def support(self):
        """Interval that holds every mean but for a mass beyond double precision."""
        return (
            float(np.max(self.prior_mean - 9 * self.sd)),
            float(np.max(self.prior_mean + 9 * self.sd)),
        )


def sample_outcome(prior, horizon, rng):
    """(means `[K]`, rewards `[K, horizon]`) drawn from the belief."""
    means = prior.sample_means(rng)
    return means, prior.sample_rewards(means, horizon, rng)


def belief_trajectory(prior, arm, rewards):
    """Beliefs y_{a,0}, ..., y_{a,n} along the rewards `[n]` of one arm."""
    beliefs = [prior]
    for reward in rewards:
        beliefs.append(beliefs[-1].update(arm, reward))
    return beliefs


def _argmax(values):
    return int(np.argmax(values))


# --- TS and IRS.FH ------------------------------------------------------------------------


def ts(remaining, prior, rng):
    """Thompson sampling."""
    return _argmax(prior.sample_means(rng))


def fh_means(prior, rewards):
    """mu_hat_{a,T-1} `[K]` from rewards `[K, T]`, of which the last column is not used."""
    last = np.shape(rewards)[1] - 1
    return np.array(
        [
            belief_trajectory(prior, arm, rewards[arm][:last])[-1].mean(arm)
            for arm in range(prior.num_arms)
        ]
    )


def irs_fh(remaining, prior, rng):
    """IRS.FH."""
    _, rewards = sample_outcome(prior, remaining, rng)
    return _argmax(fh_means(prior, rewards))


# --- IRS.V-Zero ---------------------------------------------------------------------------


def v_zero_sums(prior, rewards):
    """S_{a,n} = sum of mu_hat_{a,i-1} for i = 1..n, `[K, T + 1]`, from rewards `[K, T]`."""
    arms, horizon = np.shape(rewards)
    sums = np.zeros((arms, horizon + 1))
    for arm in range(arms):
        belief = prior
        for n in range(1, horizon + 1):
            sums[arm, n] = sums[arm, n - 1] + belief.mean(arm)
            belief = belief.update(arm, rewards[arm][n - 1])
    return sums


def v_zero_allocation(prior, rewards):
    """(value, pulls `[K]`) of the inner problem of IRS.V-Zero for rewards `[K, T]`."""
    sums = v_zero_sums(prior, rewards)
    arms, horizon = np.shape(rewards)
    best = np.full((arms + 1, horizon + 1), -math.inf)
    best[0, 0] = 0.0
    choice = np.zeros((arms + 1, horizon + 1), int)
    for a in range(1, arms + 1):
        for n in range(horizon + 1):
            candidates = [best[a - 1, n - m] + sums[a - 1, m] for m in range(n + 1)]
            choice[a, n] = _argmax(candidates)
            best[a, n] = candidates[choice[a, n]]
    pulls, left = np.zeros(arms, int), horizon
    for a in range(arms, 0, -1):
        pulls[a - 1] = choice[a, left]
        left -= pulls[a - 1]
    return float(best[arms, horizon]), pulls


def irs_v_zero(remaining, prior, rng):
    """IRS.V-Zero: plays the arm with the most pulls."""
    _, rewards = sample_outcome(prior, remaining, rng)
    return _argmax(v_zero_allocation(prior, rewards)[1])


# --- IRS.V-EMax ---------------------------------------------------------------------------


def expected_max_of_arms(beliefs):
    """E[max_a mu_a] where arm a has the belief `beliefs[a]`, by adaptive quadrature."""
    low = max(b.support()[0] for b in beliefs)
    high = max(b.support()[1] for b in beliefs)
    middle = sorted({low, high, *(min(max(b.mean(a), low), high) for a, b in enumerate(beliefs))})

    def below(x):
        return math.prod(b.cdf(a, x) for a, b in enumerate(beliefs))

    options = {"epsabs": 1e-12, "epsrel": 1e-12, "limit": 200}
    pieces = itertools.pairwise(middle)
    return high - sum(integrate.quad(below, x, y, **options)[0] for x, y in pieces)


def v_emax_sequence(prior, rewards):
    """(value, action sequence `[T]`) of the inner problem of IRS.V-EMax for rewards `[K, T]`."""
    arms, horizon = np.shape(rewards)
    paths = [belief_trajectory(prior, arm, rewards[arm]) for arm in range(arms)]
    lattice = [n for n in itertools.product(range(horizon + 1), repeat=arms) if sum(n) <= horizon]
    lattice.sort(key=sum)
    gamma = {
        n: expected_max_of_arms([paths[a][n[a]] for a in range(arms)])
        for n in lattice
        if sum(n) < horizon  # at the last step its factor is zero
    }

    def pay(n, arm):
        left = horizon - sum(n) - 1
        later = tuple(n[b] + (b == arm) for b in range(arms))
        mean = paths[arm][n[arm]].mean(arm)  # printed with n_a - 1
        return mean + (left * (gamma[n] - gamma[later]) if left else 0.0)

    value, last = {lattice[0]: 0.0}, {}
    for n in lattice[1:]:
        value[n] = -math.inf
        for arm in range(arms):
            if n[arm] == 0:
                continue
            back = tuple(n[b] - (b == arm) for b in range(arms))
            candidate = value[back] + pay(back, arm)
            if candidate > value[n]:
                value[n], last[n] = candidate, arm
    end = max((n for n in lattice if sum(n) == horizon), key=lambda n: value[n])
    sequence, n = [], end
    while sum(n):
        arm = last[n]
        sequence.append(arm)
        n = tuple(n[b] - (b == arm) for b in range(arms))
    return value[end], sequence[::-1]


def irs_v_emax(remaining, prior, rng):
    """IRS.V-EMax."""
    _, rewards = sample_outcome(prior, remaining, rng)
    return v_emax_sequence(prior, rewards)[1][0]


# --- IRS.Index and IRS.Index* -------------------------------------------------------------


def index_benefit(beliefs, arm, lam):
    """phi_a(lam) for the beliefs y_{a,0:T} of one arm (IRS.Single.Worth-Trying, corrected)."""
    horizon = len(beliefs) - 1
    gamma = [b.expected_max(arm, lam) for b in beliefs]
    best = -math.inf
    for n in range(1, horizon + 1):
        mean_sum = sum(beliefs[i - 1].mean(arm) for i in range(1, n + 1))
        gamma_sum = sum(gamma[i - 1] for i in range(1, n + 1))
        lowest = min(gamma[: n + 1])
        best = max(best, mean_sum + horizon * gamma[0] + (horizon - n) * (lam - lowest) - gamma_sum)
    return best - horizon * lam


def index_star_benefit(beliefs, arm, lam):
    """phi_a(lam) of IRS.Index*."""
    gamma = [b.expected_max(arm, lam) for b in beliefs]
    best, total = -math.inf, 0.0
    for i in range(1, len(beliefs)):
        total += beliefs[i - 1].mean(arm) - lam - (gamma[i] - gamma[0])
        best = max(best, total)
    return best


def index_value(prior, arm, rewards, star=False, iterations=60):
    """sup{lam : phi_a(lam) >= 0} for the rewards `[T]` of one arm, by bisection from below.

    The bracket starts low enough to be worth trying and high enough not to be. phi need not be
    monotone; then this is one of its sign changes.
    """
    beliefs = belief_trajectory(prior, arm, rewards)
    benefit = index_star_benefit if star else index_benefit
    means = [b.mean(arm) for b in beliefs]
    low, high, step = min(means), max(means), 1.0
    while benefit(beliefs, arm, low) < 0:
        low, step = low - step, 2 * step
    step = 1.0
    while benefit(beliefs, arm, high) >= 0:
        high, step = high + step, 2 * step
    for _ in range(iterations):
        middle = 0.5 * (low + high)
        if benefit(beliefs, arm, middle) >= 0:
            low = middle
        else:
            high = middle
    return low


def index_values(prior, rewards, star=False, iterations=60):
    """Indices `[K]` for the rewards `[K, T]`."""
    return np.array(
        [index_value(prior, a, rewards[a], star, iterations) for a in range(prior.num_arms)]
    )


def irs_index(remaining, prior, rng):
    """IRS.Index."""
    _, rewards = sample_outcome(prior, remaining, rng)
    return _argmax(index_values(prior, rewards))


def irs_index_star(remaining, prior, rng):
    """IRS.Index*."""
    _, rewards = sample_outcome(prior, remaining, rng)
    return _argmax(index_values(prior, rewards, star=True))


RULES = {
    "ts": ts,
    "irs.fh": irs_fh,
    "irs.v-zero": irs_v_zero,
    "irs.v-emax": irs_v_emax,
    "irs.index": irs_index,
    "irs.index*": irs_index_star,
}


def simulate_path(rule, prior, means, rewards, rng):
    """Arms pulled `[T]` when `rule` plays against the outcome (means `[K]`, rewards `[K, T]`).

    rule : a name in `RULES`, or a function (remaining, prior, rng) -> arm. The means are not
        shown to it; they are there so that `regret` and this take the same arguments.
    """
    rule = RULES.get(rule, rule)
    horizon = np.shape(rewards)[1]
    pulls, actions = [0] * prior.num_arms, []
    for t in range(horizon):
        arm = rule(horizon - t, prior, rng)
        prior = prior.update(arm, rewards[arm][pulls[arm]])
        pulls[arm] += 1
        actions.append(arm)
    return np.array(actions)


def regret(actions, means):
    """sum_t (max_a mu_a - mu_{A_t}): true means of the pulled arms, not realised rewards."""
    means = np.asarray(means)
    return float(np.sum(means.max() - means[actions]))
