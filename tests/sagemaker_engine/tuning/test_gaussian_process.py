from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.optimize import check_grad

from sagemaker_engine.tuning.gaussian_process import (
    GaussianProcess,
    Kernel,
    fit_kernel,
    log_improvement,
    negative_log_posterior,
)

NUMERIC = np.array([False, False])
POINTS = np.random.default_rng(0).random((20, 2))
WAVE = np.sin(6 * POINTS[:, 0])
KERNEL = Kernel(is_categorical=NUMERIC, lengths=np.array([0.3, 0.6]), noise=1e-6)


def test_log_improvement_agrees_with_its_definition_and_far_below_with_its_limit() -> None:
    z = np.array([-1.5, -0.5, 0.0, 2.0])
    density = np.exp(-(z**2) / 2) / math.sqrt(2 * math.pi)
    distribution = np.array([(1 + math.erf(each / math.sqrt(2))) / 2 for each in z])
    assert np.exp(log_improvement(z)) == pytest.approx(density + z * distribution)
    (far,) = log_improvement(np.array([-60.0]))
    assert far == pytest.approx(-1800 - math.log(math.sqrt(2 * math.pi) * 3600), rel=1e-5)


def test_expected_improvement_of_a_standard_normal_is_its_density_at_0() -> None:
    process = GaussianProcess.of(KERNEL, np.array([[50.0, 50.0]]), np.array([0.0]))
    (promise,) = process.log_expected_improvement(np.array([[0.0, 0.0]]))
    assert math.exp(promise) == pytest.approx(0.3989, abs=1e-4)


def test_process_knows_what_it_has_seen_and_less_elsewhere() -> None:
    process = GaussianProcess.of(KERNEL, POINTS, WAVE)
    mean, deviation = process.predict(POINTS)
    assert mean == pytest.approx(WAVE, abs=1e-3)
    assert deviation.max() < 2e-3
    _, away = process.predict(np.array([[5.0, 5.0]]))
    assert away[0] == pytest.approx(1.0)


def test_believed_point_keeps_the_mean_and_takes_the_doubt() -> None:
    process = GaussianProcess.of(KERNEL, POINTS, WAVE)
    point = np.array([[1.2, 1.2]])
    mean, deviation = process.predict(point)
    believed_mean, believed_deviation = process.believing(point).predict(point)
    assert believed_mean == pytest.approx(mean, abs=1e-4)
    assert believed_deviation[0] < 0.01 < deviation[0]


def test_gradient_is_that_of_the_posterior() -> None:
    squares = (POINTS[:, None, :] - POINTS[None, :, :]) ** 2
    at = np.log([0.3, 0.7, 0.05])

    def value(logarithms: np.ndarray) -> float:
        return negative_log_posterior(logarithms, squares, WAVE)[0]

    def gradient(logarithms: np.ndarray) -> np.ndarray:
        return negative_log_posterior(logarithms, squares, WAVE)[1]

    assert check_grad(value, gradient, at) < 1e-4


def test_fit_finds_which_dimension_matters() -> None:
    kernel = fit_kernel(POINTS, WAVE, NUMERIC)
    assert kernel.lengths[0] < 1 < kernel.lengths[1]


def test_fit_finds_noise() -> None:
    noisy = WAVE + np.random.default_rng(1).normal(0, 0.5, len(WAVE))
    assert fit_kernel(POINTS, noisy, NUMERIC).noise > 5 * fit_kernel(POINTS, WAVE, NUMERIC).noise


def test_categories_are_equal_or_not() -> None:
    kernel = Kernel(is_categorical=np.array([True]), lengths=np.array([1.0]), noise=0.0)
    same, near, far = kernel(np.array([[0.1]]), np.array([[0.1], [0.2], [0.9]]))[0]
    assert same == 1
    assert near == far == pytest.approx(0.5240, abs=1e-4)
