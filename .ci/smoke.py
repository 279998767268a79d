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


STUDY = """
from irsppl.studies import Study
study = Study(name="tiny", title="tiny", arms="beta(1,1)x2", horizon=6, replications=40,
              policies=("ts", "irs.index"), penalties=("irs.ff", "irs.v-zero"))
"""


def quick() -> None:
    """Every library that irsppl leans on, at sizes that take little more than the compilation."""
    import irsppl

    assert "site-packages" in irsppl.__file__, irsppl.__file__
    told = irsppl_command("models")
    assert "revenue" in told["models"] and "quickstart" in told["examples"]
    told = irsppl_command("bound", "conversion", "--horizon", "4", "--samples", "40")
    assert 0 < told["bounds"]["irs.v-zero"]["value"] < 4
    pathlib.Path("tiny.py").write_text(STUDY)
    told = irsppl_command("study", "tiny.py")
    assert told["table"]["ts"]["regret"] > 0
    draws = irsppl.BetaBernoulli([1, 1], [1, 2]).to_arviz(num_draws=50)
    assert draws["posterior"]["mean_reward"].shape[-1] == 2


def full() -> None:
    """The first things that the README shows, as written there."""
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
    """The tiny study with more replications, on all cores."""
    pathlib.Path("tiny.py").write_text(STUDY)
    told = irsppl_command("study", "tiny.py", "--replications", "60", "--dask", "local")
    assert told["replications"] == 60


if __name__ == "__main__":
    {"quick": quick, "full": full, "dask": dask}[sys.argv[1]]()
    print("all is well")
