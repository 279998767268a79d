"""Studies on two Dask workers: the same bytes, whoever is killed; faster; and in flat memory.

python benchmarks/cluster.py identical      # gaussian_2 without Dask, with it, and with kills
python benchmarks/cluster.py speed          # a user's traced policy: one worker, then two
python benchmarks/cluster.py memory         # 10^5 and 10^7 replications of a two-armed study
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import resource
import signal
import subprocess
import sys
import tempfile
import time
from typing import Any

import xarray as xr


def cluster(workers: int) -> Any:
    import dask
    from distributed import LocalCluster

    from irsppl._cluster import ONE_XLA_THREAD

    # A killed worker's successor takes long to start on a busy machine.
    dask.config.set({"distributed.deploy.lost-worker-timeout": "300s"})
    return LocalCluster(
        n_workers=workers,
        threads_per_worker=1,
        memory_limit=0,
        dashboard_address=":0",
        env=ONE_XLA_THREAD,
    )


# ------------------------------------------------------------------ the same bytes


def identical(name: str, replications: int, folder: str) -> None:
    """In a folder that holds some of it already, this goes on: studies resume."""
    from distributed import Client

    out = pathlib.Path(folder)
    base = [sys.executable, "-m", "irsppl", "study", name, "--replications", str(replications)]

    def pieces(where: str) -> int:
        return len(list((out / where / name / "chunks").glob("*.chunk")))

    def run(where: str, *more: str) -> dict[str, Any]:
        if (out / where / name / "data.nc").exists():
            return {"pieces_computed": 0, "pieces_reused": pieces(where), "seconds": 0.0}
        begin = time.monotonic()
        command = [*base, "--json", "--out", str(out / where), *more]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE)
        told = json.loads(done.stdout)
        told["seconds"] = time.monotonic() - begin
        return told

    def show(what: str, told: dict[str, Any]) -> None:
        made, kept = told["pieces_computed"], told["pieces_reused"]
        print(f"{what}: {made} pieces computed, {kept} reused, {told['seconds']:.0f} s", flush=True)

    plain = run("plain")
    show("without Dask", plain)
    with cluster(2) as two, Client(two, set_as_default=False) as client:
        address = two.scheduler_address
        show("two workers", run("dask", "--dask", address))
        total = plain["pieces_computed"] + plain["pieces_reused"]
        there = pieces("killed")
        command = [*base, "--out", str(out / "killed"), "--dask", address]
        first = subprocess.Popen(command, stdout=subprocess.DEVNULL)

        def wait_for(share: float) -> None:
            while pieces("killed") < there + share * (total - there):
                time.sleep(0.05)

        def kill_a_worker(share: float) -> None:
            wait_for(share)
            pids = client.run(os.getpid, on_error="ignore").values()
            os.kill(next(iter(pids)), signal.SIGKILL)
            print(f"a worker killed by -9 after {pieces('killed')} of {total} pieces", flush=True)

        kill_a_worker(0.1)
        wait_for(0.4)
        first.kill()
        assert first.wait() == -signal.SIGKILL
        print(f"the client killed by -9 after {pieces('killed')} pieces", flush=True)
        before = {p: p.stat().st_mtime_ns for p in (out / "killed").rglob("*.chunk")}
        begin = time.monotonic()
        again = subprocess.Popen([*command, "--json"], stdout=subprocess.PIPE)
        kill_a_worker(0.7)
        told, _ = again.communicate()
        assert again.returncode == 0
        show("after the kills", json.loads(told) | {"seconds": time.monotonic() - begin})
        now = {p: p.stat().st_mtime_ns for p in (out / "killed").rglob("*.chunk")}
        assert before.items() <= now.items(), "a finished piece was computed again"
    with xr.open_dataset(out / "plain" / name / "data.nc", engine="h5netcdf") as data:
        wanted = data.load()
    for where in ("dask", "killed"):
        with xr.open_dataset(out / where / name / "data.nc", engine="h5netcdf") as data:
            found = data.load()
        names = [n for n in wanted.variables if n != "seconds_per_path"]
        assert set(found.variables) == set(wanted.variables)
        differ = [n for n in names if found[n].values.tobytes() != wanted[n].values.tobytes()]
        assert not differ, differ
        print(f"{where}: all {len(names)} arrays identical, byte for byte", flush=True)


# ------------------------------------------------------------------ faster


def cautious(key: Any, bandit: Any) -> Any:
    """A policy as users write them: upper confidence limits, traced, so an XLA program."""
    import jax
    import jax.numpy as jnp

    def limit(draw: Any) -> Any:
        return bandit.belief.predictive_mean() + 0.5 * jax.random.normal(draw, (bandit.num_arms,))

    return jnp.argmax(jnp.quantile(jax.vmap(limit)(jax.random.split(key, 32)), 0.8, axis=0))


def speed(replications: int) -> None:
    from distributed import Client

    from irsppl.studies import Study, run_study

    study = Study(
        name="own",
        title="A policy of the user's own",
        arms="beta(1,1)x5",
        horizon=100,
        policies={"cautious": cautious},
        penalties=("irs.ff",),
        replications=replications,
    )
    seconds = {}
    for workers in (1, 2):
        with cluster(workers) as some, Client(some, set_as_default=False) as client:
            for _ in range(2):  # the first one compiles, in every worker
                begin = time.monotonic()
                run_study(study, out=tempfile.mkdtemp(), progress=False, client=client)
                seconds[workers] = time.monotonic() - begin
        print(f"{workers} workers: {seconds[workers]:.1f} s", flush=True)
    print(f"two workers are {seconds[1] / seconds[2]:.2f} times as fast as one")


# ------------------------------------------------------------------ flat memory


def memory(replications: int, folder: str) -> None:
    """Peak memory of a run of its own, in a process of its own; killed once, and resumed."""
    command = [sys.executable, __file__, "one", "--folder", folder, "--replications"]
    peaks = {}
    for size in (replications // 100, replications):
        first = 0.0
        out = pathlib.Path(folder) / str(size)
        if size == replications:
            process = subprocess.Popen([*command, str(size)])
            while len(list(out.rglob("policy-*.chunk"))) < 40:
                time.sleep(0.05)
            status = pathlib.Path(f"/proc/{process.pid}/status").read_text()
            first = int(status.partition("VmHWM:")[2].split()[0]) / 1024
            process.kill()
            process.wait()
            made = len(list(out.rglob("*.chunk")))
            print(f"killed by -9 after {made} pieces, peak {first:.0f} MB", flush=True)
        begin = time.monotonic()
        done = subprocess.run([*command, str(size)], check=True, stdout=subprocess.PIPE)
        told = json.loads(done.stdout)
        peaks[size] = max(told["peak"], first)
        print(
            f"{size:,} replications: peak {told['peak']:.0f} MB, {told['computed']} pieces "
            f"computed, {told['reused']} reused, {time.monotonic() - begin:.0f} s; {told['table']}",
            flush=True,
        )
    small, large = peaks.values()
    print(f"peak memory: {large / small:.3f} times that of a hundredth of the replications")


def one(replications: int, folder: str) -> None:
    from irsppl.studies import Study, run_study, study_table

    study = Study(
        name="short",
        title="Two Gaussian arms, five periods",
        arms="normal(0,1,noise=1)x2",
        horizon=5,
        policies=("ts",),
        penalties=("irs.ff", "irs.v-zero"),
    )
    result = run_study(study, replications, pathlib.Path(folder) / str(replications))
    table = study_table(result.data)
    told = {
        "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "computed": result.computed,
        "reused": result.reused,
        "table": f"regret {table.loc['ts', 'regret']:.5f} ({table.loc['ts', 'regret_stderr']:.5f})",
    }
    print(json.dumps(told))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["identical", "speed", "memory", "one"])
    parser.add_argument("--study", default="gaussian_2")
    parser.add_argument("--replications", type=int)
    parser.add_argument("--folder")
    args = parser.parse_args()
    if args.what == "identical":
        identical(args.study, args.replications or 4000, args.folder or tempfile.mkdtemp())
    elif args.what == "speed":
        speed(args.replications or 20_000)
    elif args.what == "memory":
        memory(args.replications or 10**7, args.folder or tempfile.mkdtemp())
    else:
        one(args.replications, args.folder)
