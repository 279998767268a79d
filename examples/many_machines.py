"""One study on many processes: pieces go to a Dask cluster, results come back the same.

Two workers on this machine stand for the cluster; on a real one, give `Client` the address of its
scheduler. Run: python examples/many_machines.py (needs pip install 'irsppl[dask]')
"""

import jax
import jax.numpy as jnp
from distributed import Client, LocalCluster

import irsppl
from irsppl.studies import Study, open_study, run_study, study_table


def cautious(key, bandit):
    """A policy of your own, traced by JAX: one core for each process is all that XLA uses."""
    noise = 0.3 * jax.random.normal(key, (bandit.num_arms,))
    return jnp.argmax(bandit.belief.predictive_mean() + noise / jnp.sqrt(1 + bandit.counts))


def main(replications=4000, out="results", horizon=50):
    study = Study(
        name="many_machines",
        title="Three Bernoulli arms, a policy of one's own",
        arms=("beta(3,1)", "beta(1,1)", "beta(1,3)"),
        horizon=horizon,
        policies={"ts": "ts", "cautious": cautious},
        penalties=("irs.ff", "irs.v-zero"),
    )
    # One thread for each worker: XLA programs of one process must not run side by side.
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):
        result = run_study(study, replications, out, client=client)
        print(f"{result.computed} pieces computed, {result.reused} found from before")
        print(study_table(result.data)[["regret", "regret_stderr", "regret_bound"]])

        bandit = study.bandit()
        bounds = irsppl.bound(bandit, ["irs.ff", "irs.v-zero"], num_samples=400, client=client)
        print(f"nobody earns more than {bounds.tightest.value:.3f}")

    data = open_study(result.folder)  # lazily: nothing is read before it is needed
    shares = (data["regret"].sel(policy="cautious") > 10).mean("replication")
    print(f"share of replications with a regret above 10: {float(shares[-1]):.3f}")


if __name__ == "__main__":
    main()
