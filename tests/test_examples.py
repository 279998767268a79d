"""Every script in examples/ runs, at a tiny size."""

import pathlib
import runpy

import pytest

EXAMPLES = sorted((pathlib.Path(__file__).parent.parent / "examples").glob("*.py"))
SMALL = {"replications": 60, "patients": 8, "samples": 60, "horizon": 8}


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda p: p.stem)
def test_example_runs(path, tmp_path, capsys):
    main = runpy.run_path(str(path))["main"]
    accepted = main.__code__.co_varnames[: main.__code__.co_argcount]
    sizes = {
        name: value for name, value in (SMALL | {"out": str(tmp_path)}).items() if name in accepted
    }
    assert sizes, "an example takes its size as an argument of main()"
    main(**sizes)
    assert capsys.readouterr().out.strip()
