"""A hundred thousand periods: decisions whose cost does not grow with the horizon.

Ten advertisements, one shown to each visitor. `irsppl.Mix` plans some 200 pulls with care and
sums up the rest; an index with `lookahead=` plans for that many periods at most. Neither draws
rewards for all the periods that are left. Run: python examples/long_run.py
"""

import argparse
import time

import numpy as np

import irsppl


def main(horizon: int = 100_000, replications: int = 4, seed: int = 0) -> None:
    belief = irsppl.BetaBernoulli(alpha=np.full(10, 2.0), beta=np.full(10, 20.0))
    bandit = irsppl.Bandit(belief, horizon)

    # In earnest: one decision after another, from any state of play.
    rng = np.random.default_rng(seed)
    clicks = rng.beta(2.0, 20.0, 10)  # the truth, unknown to the policy
    first = irsppl.choose(bandit, irsppl.Mix(T0=200), key=0)  # compiles
    start, periods = time.perf_counter(), min(200, horizon)
    for period in range(periods):
        arm = irsppl.choose(bandit, irsppl.Mix(T0=200), key=period)
        bandit = bandit.pull(arm, int(rng.random() < clicks[arm]))
    each = (time.perf_counter() - start) / periods
    print(f"irs.mix: first arm {first}, then {each * 1e3:.2f} ms per period; state: {bandit}")

    # Whole paths, compiled. A few show what they cost; an average regret would take many more.
    policies = {
        "ts": "ts",
        "irs.fh": "irs.fh",
        "index, lookahead T/5": irsppl.Index(lookahead=max(1, horizon // 5)),
    }
    bandit = irsppl.Bandit(belief, horizon)
    for label, policy in policies.items():
        start = time.perf_counter()
        data = irsppl.simulate(bandit, {label: policy}, seed, replications)
        regret = data["regret"].sel(policy=label).values
        error = regret.std(ddof=1) / np.sqrt(replications)
        print(
            f"{label:22} regret {regret.mean():8.1f} (s.e. {error:.1f}), "
            f"{(time.perf_counter() - start) / replications:.2f} s per path"
        )
    least = irsppl.bound(bandit, "irs.fh").regret_bound
    print(f"no policy has a regret below {least:.2f} (irs.fh, exact)")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--horizon", type=int, default=100_000)
    parser.add_argument("--replications", type=int, default=4)
    parser.add_argument("--seed", type=int, default=0)
    main(**vars(parser.parse_args()))
