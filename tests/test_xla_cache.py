"""Compiled programs on disk: on by default, a user's own setting comes first, never an error."""

import os
import pathlib
import subprocess
import sys
import types

import pytest

from irsppl import _xla_cache


class Config:
    """What `switch_on` asks of `jax.config`."""

    def __init__(self, folder=None, enabled=True):
        self.jax_compilation_cache_dir, self.jax_enable_compilation_cache = folder, enabled
        self.updates = {}

    def update(self, name, value):
        self.updates[name] = value


@pytest.fixture
def switch(monkeypatch, tmp_path):
    """(config, environment) -> what was switched on, with a home of its own."""
    monkeypatch.setattr(_xla_cache.compilation_cache, "reset_cache", lambda: None)
    home = tmp_path / "home" / "irsppl"
    monkeypatch.setattr(_xla_cache, "user_folder", lambda what: home / f"{what}-machine")
    for name in (_xla_cache.VARIABLE, *filter(lambda n: n.startswith("JAX_"), os.environ)):
        monkeypatch.delenv(name, raising=False)

    def run(config, **environment):
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setattr(_xla_cache, "jax", types.SimpleNamespace(config=config))
        return _xla_cache.switch_on()

    return run


def test_programs_are_kept_in_the_users_cache_folder(switch, tmp_path):
    config = Config()
    folder = switch(config)
    assert os.path.isdir(folder) and folder.startswith(str(tmp_path / "home"))
    assert config.updates["jax_compilation_cache_dir"] == folder
    assert config.updates["jax_persistent_cache_min_compile_time_secs"] < 1


def test_a_users_own_setting_comes_first(switch, tmp_path):
    for config in (Config(folder="/their/own"), Config(enabled=False)):
        assert switch(config) is None and not config.updates
    config = Config()
    own = str(tmp_path / "mine")
    name = "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"
    assert switch(config, IRSPPL_XLA_CACHE=own, **{name: "5"}) == own
    assert name.lower() not in config.updates


def test_it_can_be_turned_off(switch):
    config = Config()
    assert switch(config, IRSPPL_XLA_CACHE="off") is None and not config.updates


def test_nothing_happens_where_no_folder_can_be_written(switch, tmp_path):
    config = Config()
    (tmp_path / "file").write_text("")
    assert switch(config, IRSPPL_XLA_CACHE=str(tmp_path / "file" / "below")) is None
    assert not config.updates


MAPS = """
import irsppl, jax, numpyro, numpyro.distributions as dist
from irsppl import _xla_cache

traced = []

@jax.jit
def double(x):
    traced.append(x)
    return 2 * x

def arm(reward=None):
    skill = numpyro.sample("skill", dist.Beta(1.0, 1.0))
    numpyro.sample("reward", dist.Bernoulli(skill), obs=reward)

double(1.0)
assert not _xla_cache.make_room()
assert irsppl.from_numpyro(arm, num_arms=1).update(0, 1.0).predictive_mean()[0] > 0.5
double(1.0)
assert len(traced) == 1
_xla_cache._FULL = 0.0
belief = irsppl.from_numpyro(arm, num_arms=1)
double(1.0)
assert len(traced) == 2
assert _xla_cache.make_room()
assert belief.update(0, 1.0).predictive_mean()[0] > 0.5  # compiled again
"""


@pytest.mark.skipif(not pathlib.Path("/proc/self/maps").exists(), reason="maps are Linux's")
def test_programs_are_let_go_before_the_maps_are_used_up():
    """Reading a model makes room, and only where there is little left.

    In a process of its own: this one's other tests need their programs.
    """
    found = subprocess.run([sys.executable, "-c", MAPS], capture_output=True, text=True)
    assert found.returncode == 0, found.stderr
