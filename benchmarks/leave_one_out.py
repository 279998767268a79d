"""Leave-one-out bounds on the instances of docs/leave-one-out.md.

    python benchmarks/leave_one_out.py [case ...]        # all cases, or those named; --only fit
    python benchmarks/leave_one_out.py --constrained     # delays, budgets, a law of the horizon
    python benchmarks/leave_one_out.py --correlated      # arms that tell of each other
    python benchmarks/leave_one_out.py --cost            # time and memory, ten Bernoulli arms
    python benchmarks/leave_one_out.py --figure          # docs/figures/leave-one-out.png

Each row: regret bound (standard error), seconds of processor time. Cases are listed in `CASES`.
"""

from __future__ import annotations

import argparse
import resource
import time

import numpy as np

import irsppl


def bernoulli(arms, horizon=None, **options):
    belief = irsppl.BetaBernoulli(np.ones(arms), np.ones(arms))
    return irsppl.Bandit(belief, horizon, **options)


def gaussian(arms, horizon, noise=None):
    noise = np.ones(arms) if noise is None else np.asarray(noise)
    return irsppl.Bandit(irsppl.NormalNormal(np.zeros(arms), np.ones(arms), noise), horizon)


def logistic(arms, horizon):
    import numpyro
    import numpyro.distributions as dist

    def arm(reward=None):
        skill = numpyro.sample("skill", dist.Normal(0, 1.5))
        numpyro.sample("reward", dist.Bernoulli(logits=skill), obs=reward)

    return irsppl.Bandit(irsppl.from_numpyro(arm, num_arms=arms), horizon)


# name: (bandit, {penalty: futures})
CASES = {
    "bernoulli-2": (lambda: bernoulli(2, 200), {"zero": 20_000, "solo": 20_000, "fit": 20_000}),
    "bernoulli-10": (lambda: bernoulli(10, 500), {"zero": 4000, "solo": 8000, "fit": 3000}),
    "bernoulli-10-short": (lambda: bernoulli(10, 100), {"zero": 6000, "solo": 6000, "fit": 6000}),
    "gaussian-2": (lambda: gaussian(2, 200), {"zero": 8000, "solo": 8000, "fit": 8000}),
    "gaussian-10": (lambda: gaussian(10, 500), {"zero": 2000, "solo": 2000, "fit": 2000}),
    "gaussian-5-noise": (
        lambda: gaussian(5, 500, [0.1, 0.4, 1.0, 4.0, 10.0]),
        {"zero": 2000, "solo": 2000, "fit": 2000},
    ),
    "logistic-2": (lambda: logistic(2, 100), {"zero": 3000, "solo": 3000}),
}
_SOME = {"ff": 4000, "separable": 4000, "solo": 4000}
_MANY = {kind: 20_000 for kind in _SOME}
CONSTRAINED = {
    "delay-2": (lambda: bernoulli(2, 60, delay=5), {**_SOME, "standard": 4000}),
    "delay-5": (lambda: bernoulli(5, 100, delay=20), _SOME),
    "budget-2": (lambda: bernoulli(2, costs=[1, 2], budget=80), _MANY),
    "budget-5": (lambda: bernoulli(5, 80, costs=[1, 2, 3, 1, 2], budget=120), _MANY),
    "law-5": (lambda: bernoulli(5, np.linspace(1, 0.01, 100)), _SOME),
}


def correlated(arms, horizon, rho):
    cov = rho + (1 - rho) * np.eye(arms)
    belief = irsppl.LinearGaussian(np.eye(arms), np.zeros(arms), cov, np.ones(arms))
    return irsppl.Bandit(belief, horizon)


def linear(arms, weights, horizon):
    """Arms at random directions, so that each tells much of the others."""
    features = np.random.default_rng(0).normal(size=(arms, weights)) / np.sqrt(weights)
    belief = irsppl.LinearGaussian(features, np.zeros(weights), np.eye(weights), np.ones(arms))
    return irsppl.Bandit(belief, horizon)


def shared_logit(arms, horizon):
    """Success rates that move together, a NumPyro model."""
    import numpyro
    import numpyro.distributions as dist

    def model(arm, reward=None):
        common = numpyro.sample("common", dist.Normal(0, 1))
        own = numpyro.sample("own", dist.Normal(0, 1).expand([arms]).to_event(1))
        numpyro.sample("reward", dist.Bernoulli(logits=common + own[arm]), obs=reward)

    belief = irsppl.from_numpyro_joint(
        model, num_arms=arms, representation="particles", num_particles=512
    )
    return irsppl.Bandit(belief, horizon)


CORRELATED = {
    "gaussian-2, 0.5": (lambda: correlated(2, 100, 0.5), _SOME),
    "gaussian-5, 0.5": (lambda: correlated(5, 100, 0.5), _SOME),
    "gaussian-5, 0.8": (lambda: correlated(5, 100, 0.8), _SOME),
    "gaussian-5, 0.95": (lambda: correlated(5, 100, 0.95), _SOME),
    "linear-20-3": (lambda: linear(20, 3, 100), {kind: 1000 for kind in _SOME}),
    "logit-3": (lambda: shared_logit(3, 50), {kind: 1000 for kind in _SOME}),
}
PENALTIES = {
    "zero": "irs.v-zero",
    "solo": "irs.v-solo",
    "fit": "irs.v-fit",
    "standard": irsppl.VFit("standard"),
    "ff": "irs.ff",
    "separable": "irs.v-zero-separable",
}


def run(name, only=None):
    make, sizes = (CASES | CONSTRAINED | CORRELATED)[name]
    bandit = make()
    for kind, count in sizes.items():
        if only and kind not in only:
            continue
        irsppl.bound(bandit, "irs.v-zero-separable", num_samples=64)  # compiled before it is timed
        begin = time.process_time()
        found = irsppl.bound(bandit, PENALTIES[kind], key=1, num_samples=count)
        seconds = time.process_time() - begin
        scale = found.fitted.get("scale")
        told = "" if scale is None else f", scale {scale:g}"
        print(
            f"{name:20s} {found.penalty:12s} {found.regret_bound:8.3f} ({found.regret_stderr:.3f}) "
            f"value {found.value:.3f}, {count} futures, {seconds:.1f} s{told}",
            flush=True,
        )


def cost(case="bernoulli-10", futures=4000, rounds=3):
    """V-Solo's time over V-Zero's in one run, its pilot included, and what V-Fit takes.

    Processor time: wall time depends on who else uses the machine. Peak of memory: of the process.
    """
    bandit = CASES[case][0]()
    begin = time.process_time(), time.perf_counter()
    found = irsppl.bound(bandit, "irs.v-fit", key=1, num_samples=4000)
    seconds = time.process_time() - begin[0], time.perf_counter() - begin[1]
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    told = f"{seconds[0]:.0f} s (processor), {seconds[1]:.0f} s (wall), peak {peak:.0f} MB"
    print(f"{case}: V-Fit {told}, {found.regret_bound:.3f} ({found.regret_stderr:.3f})", flush=True)
    ratios = []
    for count in (64, *[futures] * rounds):  # the first compiles
        taken = []
        for kind in ("zero", "solo"):
            begin = time.process_time(), time.perf_counter()
            irsppl.bound(bandit, PENALTIES[kind], key=1, num_samples=count)
            taken.append((time.process_time() - begin[0], time.perf_counter() - begin[1]))
        ratios.append(np.divide(taken[1], taken[0]))
    processor, wall = np.median(ratios[1:], axis=0)
    print(f"{case}: V-Solo / V-Zero {processor:.2f} (processor), {wall:.2f} (wall)", flush=True)


HORIZONS = {2: (10, 20, 50, 100, 200), 10: (20, 50, 100, 200)}


BOUNDS = {"irs.v-zero": "V-Zero", "irs.v-solo": "V-Solo", "irs.v-fit": "V-Fit"}
POLICIES = {"ts": "Thompson sampling", "irs.index": "IRS.Index"}


def measure(arms, horizon):
    """Regret bounds, and steadied regrets of policies."""
    bandit = bernoulli(arms, horizon)
    found = {}
    for name in BOUNDS:
        if arms == 2 or name != "irs.v-fit":
            penalty = irsppl.VFit("quick") if name == "irs.v-fit" else name
            bound = irsppl.bound(bandit, penalty, key=1, num_samples=1000)
            found[name] = round(bound.regret_bound, 3)
    data = irsppl.simulate(bandit, list(POLICIES), key=2, num_replications=800)
    for name in POLICIES:
        found[name] = round(float(data["steadied_regret"].sel(policy=name).mean()), 3)
    return found


def draw(rows, path):
    """Regret bounds against the horizon beside policies; rows {(arms, horizon): figures}."""
    import matplotlib.pyplot as plt

    fig, axes = plt.subplots(1, 2, figsize=(9, 4.2), layout="constrained")
    colours = {"ts": "C7", "irs.index": "C0", "irs.v-zero": "C1", "irs.v-solo": "C2"}
    for ax, (arms, horizons) in zip(axes, HORIZONS.items(), strict=True):
        if arms == 2:
            best = []
            for horizon in horizons:
                bandit = bernoulli(arms, horizon)
                bounds = (irsppl.bound(bandit, name).value for name in ("ts", "ideal"))
                best.append(float(np.subtract(*bounds)))
            ax.plot(horizons, best, color="black", lw=1.5, label="optimum (V*)")
        for name, told in (POLICIES | BOUNDS).items():
            if name in rows[arms, horizons[0]]:
                line = [rows[arms, horizon][name] for horizon in horizons]
                style = "-" if name in POLICIES else "--"
                colour = colours.get(name, "C3")
                ax.plot(horizons, line, color=colour, ls=style, marker="o", ms=3, label=told)
        ax.set_xlabel("horizon T (periods)")
        ax.set_ylabel("regret over the horizon (reward)")
        ax.set_title(f"{arms} Bernoulli arms, uniform priors")
        top = max(max(row.values()) for (k, _), row in rows.items() if k == arms)
        ax.set_ylim(0, 1.55 * top)
        ax.legend(loc="upper left", ncols=2, fontsize=8, title="dashed: no policy is below")
    fig.savefig(path, dpi=150)


def figure(path):
    rows = {}
    for arms, horizons in HORIZONS.items():
        for horizon in horizons:
            rows[arms, horizon] = measure(arms, horizon)
            print(arms, horizon, rows[arms, horizon], flush=True)
    draw(rows, path)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("cases", nargs="*", default=list(CASES))
    parser.add_argument("--only", nargs="*", choices=list(PENALTIES), help="penalties")
    parser.add_argument("--figure", action="store_true")
    parser.add_argument("--constrained", action="store_true")
    parser.add_argument("--correlated", action="store_true")
    parser.add_argument("--cost", action="store_true")
    options = parser.parse_args()
    if options.figure:
        figure("docs/figures/leave-one-out.png")
    elif options.cost:
        for case in options.cases if len(options.cases) < len(CASES) else ["bernoulli-10"]:
            cost(case)
    else:
        named = CORRELATED if options.correlated else options.cases
        for case in CONSTRAINED if options.constrained else named:
            run(case, options.only)
