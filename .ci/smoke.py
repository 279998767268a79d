"""What a user does first, with nothing but the wheel: run by .ci/matrix in an empty folder."""

import json
import pathlib
import re
import subprocess
import sys


def irsppl_command(*arguments: str) -> dict:
    command = [str(pathlib.Path(sys.executable).parent / "irsppl"), *arguments, "--json"]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    return json.loads(done.stdout)


def plain() -> None:
    import arviz
    import numpy as np

    import irsppl

    assert "site-packages" in irsppl.__file__, irsppl.__file__
    block = re.search(
        r"## In Python\n+```python\n(.*?)```", pathlib.Path("README.md").read_text(), re.S
    )
    namespace: dict = {}
    exec(block[1].replace("reward = ...", "reward = 1"), namespace)
    assert int(namespace["bandit"].remaining) == 0

    told = irsppl_command("models")
    assert "revenue" in told["models"] and "quickstart" in told["examples"]
    told = irsppl_command("bound", "conversion", "--horizon", "20")
    assert 0 < told["bounds"]["irs.v-zero"]["value"] < 20
    told = irsppl_command("study", "quickstart", "--replications", "200")
    assert told["table"]["opt"]["regret"] > 0
    data = namespace["data"]
    assert np.isfinite(data["regret"].values).all()
    draws = namespace["belief"].to_arviz(num_draws=50)
    assert draws["posterior"]["mean_reward"].shape[-1] == 3, arviz.__version__


def dask() -> None:
    told = irsppl_command("study", "quickstart", "--replications", "400", "--dask", "local")
    assert told["pieces_reused"] > 0 or told["pieces_computed"] > 0


if __name__ == "__main__":
    {"plain": plain, "dask": dask}[sys.argv[1]]()
    print("all is well")
