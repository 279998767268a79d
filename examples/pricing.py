"""What price? A seller tries prices week by week; one unknown demand line lies behind them all.

Units sold at price p are base - slope * p plus noise, so the revenue p * (base - slope * p) is
linear in (base, slope), and a week at one price teaches about every price. Shown: what that is
worth against treating the prices as unrelated, and how far from the best possible each policy is.
Run: python examples/pricing.py
"""

import argparse

import jax
import numpy as np

import irsppl

PRICES = np.array([2.0, 3.0, 4.0, 5.0, 6.0])


def demand_line() -> irsppl.LinearGaussian:
    """Revenue of a week at each price; base ~ N(10, 2), slope ~ N(1.2, 0.4), high when base is."""
    return irsppl.LinearGaussian(
        features=np.stack([PRICES, -(PRICES**2)], axis=1),
        mean=[10.0, 1.2],
        cov=[[4.0, 0.5], [0.5, 0.16]],
        noise_sd=3.0 * PRICES,  # three units of noise in demand
    )


def main(replications: int = 2000, samples: int = 2000, horizon: int = 30) -> None:
    belief = demand_line()
    labels = [f"{price:g}" for price in PRICES]
    bandit = irsppl.Bandit(belief, horizon, labels=labels)

    penalties = ["ts", "irs.fh", "irs.ff", "irs.v-zero-separable"]
    bounds = irsppl.bound(bandit, penalties, num_samples=samples)
    print(f"Revenue over {horizon} weeks that no policy can beat:")
    for name, found in bounds.items():
        print(f"  {name:22} {found.value:8.2f}  (s.e. {found.stderr:.2f})")

    # The same futures for someone who knows of the line and for someone who takes every price for
    # an arm of its own, with the right prior of that price.
    keys = jax.random.split(jax.random.key(0), replications)
    futures = jax.vmap(lambda key: belief.sample_outcome(key, horizon))(keys)
    policies = ["greedy", "ts", "irs.fh", "irs.v-zero-separable"]
    together = irsppl.simulate(bandit, policies, outcomes=futures)
    print("\nWhat policies earn when a week teaches about every price:")
    print(irsppl.summary(together).round(2).to_string())
    unrelated = irsppl.Bandit(belief.marginals(), horizon, labels=labels)
    apart = irsppl.simulate(unrelated, policies, outcomes=futures)
    print("\nThe same policies if they take the prices for unrelated:")
    print(irsppl.summary(apart).round(2).to_string())


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--replications", type=int, default=2000)
    parser.add_argument("--samples", type=int, default=2000)
    parser.add_argument("--horizon", type=int, default=30)
    main(**vars(parser.parse_args()))
