"""Strict session: a silent broadcast between ranks raises. (Keys: see `test_keys.py`.)"""

import contextlib
import functools
import gc
import json
import os
import pathlib

import jax
import numpy as np
import pytest

import irsppl
from irsppl._running import RunningMean
from irsppl._xla_cache import make_room

from .registry import FAMILIES

jax.config.update("jax_numpy_rank_promotion", "raise")
# Most of the suite's time is compilation of programs that run once: fewer passes of the compiler,
# its older way of writing fused loops (half of the time), and a program compiled in one piece, not
# in many side by side (a tenth to a quarter less; half as many memory maps, see below), in the
# processes that tests start as well. XLA aborts where it does not know a flag.
if jax.__version_info__[:2] == (0, 10):
    flags = "--xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1"
    os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {flags}".strip()
jax.config.update("jax_disable_most_optimizations", True)
os.environ["JAX_DISABLE_MOST_OPTIMIZATIONS"] = "1"
# What is kept on disk is still translated, and Python looks for cycles in all that this makes: no
# note of the lines a program came from, one MLIR context for all programs instead of one each (8 to
# 3 ms for a small one), and a look for cycles every 20,000 objects.
jax.config.update("jax_traceback_in_locations_limit", 0)
os.environ["JAX_TRACEBACK_IN_LOCATIONS_LIMIT"] = "0"
with contextlib.suppress(ImportError, AttributeError):  # not a public name: without it, slower
    from jax._src.interpreters import mlir

    mlir.make_ir_context = functools.cache(mlir.make_ir_context)
gc.set_threshold(20_000, 20, 50)


@pytest.fixture(params=FAMILIES)
def belief(request):
    return FAMILIES[request.param]()


@pytest.fixture(scope="session")
def paper():
    """Figures of the paper, and exact ones for its worked example."""
    path = pathlib.Path(__file__).parent / "data" / "paper.json"
    return json.loads(path.read_text())


@pytest.fixture
def worked(paper):
    """The paper's illustrative example: bandit, outcome, exact figures."""
    example = paper["worked_example"]
    alpha, beta = zip(*example["priors"], strict=True)
    bandit = irsppl.Bandit(irsppl.BetaBernoulli(alpha, beta), horizon=example["T"])
    return bandit, irsppl.Outcome(**example["outcome"]), example


def pytest_runtest_teardown(item, nextitem):
    """A session that compiles thousands of programs would crash in the compiler."""
    item.config.tests_run = getattr(item.config, "tests_run", 0) + 1
    if item.config.tests_run % 20 == 0:
        make_room()


@contextlib.contextmanager
def optimised(wanted=True):
    """For a program that runs for longer than XLA takes to compile it well."""
    jax.config.update("jax_disable_most_optimizations", not wanted)
    yield
    jax.config.update("jax_disable_most_optimizations", True)


@pytest.fixture
def compilations():
    """Counts XLA compilations through JAX's own monitoring events."""
    events = []

    def listen(event, duration, **kwargs):
        if event == "/jax/core/compile/backend_compile_duration":
            events.append(event)

    jax.monitoring.register_event_duration_secs_listener(listen)
    yield events
    jax.monitoring.unregister_event_duration_listener(listen)


def mean_by_controls(raw, columns):
    """Mean of `raw` and its standard error, with control variates `columns` of mean 0."""
    running = RunningMean()
    running.add(raw, columns)
    return running.mean_error()


def within(estimate, stderr, truth, truth_stderr=0.0, sigmas=4.0):
    """4 combined standard errors: one false alarm in 16,000 per comparison if all is well."""
    error = np.hypot(stderr, truth_stderr)
    assert abs(estimate - truth) <= sigmas * error + 1e-9, (
        f"{estimate:.6g} is {abs(estimate - truth) / error:.1f} standard errors from {truth:.6g}"
    )
