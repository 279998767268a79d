"""Options that make XLA compile sooner: known ones only, and the same numbers."""

import jax
import jax.numpy as jnp
import numpy as np

from irsppl import _xla_options

from .conftest import optimised


def test_lean_programs_compute_the_same():
    def walk(x):
        return jax.lax.fori_loop(0, 5, lambda i, x: jnp.sin(x @ x.T) @ x + i, x)

    x = np.linspace(-1, 1, 12, dtype=np.float32).reshape(4, 3)
    with optimised():
        options = _xla_options.lean()
        assert options["xla_backend_optimization_level"] == 1
        lean = _xla_options.jit(_xla_options.lean)(walk)(x)
        np.testing.assert_allclose(lean, jax.jit(walk)(x), rtol=1e-5)
    assert _xla_options.lean() == {}  # a session that wants fewer optimisations has its way


def test_options_that_xla_does_not_have_are_left_out():
    assert _xla_options._known("xla_backend_optimization_level", 1)
    assert not _xla_options._known("xla_no_such_option", 1)


def test_a_program_is_compiled_once(compilations):
    double = _xla_options.jit(_xla_options.quick, static_argnums=1)(lambda x, n: n * x)
    x = jnp.arange(3.0)
    compilations.clear()
    found = [double(x, 2) for _ in range(3)]
    assert len(compilations) == 1
    np.testing.assert_array_equal(found, [[0.0, 2.0, 4.0]] * 3)
