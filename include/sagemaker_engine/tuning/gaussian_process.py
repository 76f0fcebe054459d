"""Gaussian process: expected losses at any point, from observed losses.

A point is one row of an array. It has one position from 0 to 1 per range, on the scale of that range. Losses have
mean 0 and variance 1. The kernel is a Matern 5/2 with a length for each dimension, as in Snoek et al., "Practical
Bayesian Optimization of Machine Learning Algorithms", NeurIPS 2012, and in the service (Perrone et al., "Amazon
SageMaker Automatic Model Tuning", KDD 2021). Lengths and noise are the most probable ones under BoTorch's default
priors (Hvarfner et al., "Vanilla Bayesian Optimization Performs Great in High Dimensions", ICML 2024). The module is
independent of searches.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.linalg import cho_solve, solve_triangular
from scipy.optimize import minimize
from scipy.special import erfcx, ndtr

Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]

LOG_NOISE_MEAN, LOG_NOISE_DEVIATION = -4.0, 1.0
MIN_NOISE, MAX_NOISE = 1e-6, 1.0
MIN_LENGTH, MAX_LENGTH, FIRST_LENGTH = 0.01, 100.0, 0.5
MIN_VARIANCE = 1e-12
MAX_FIT_STEPS = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernel:
    """Covariance function: returns the covariance of the losses at two points.

    It depends on the points' distance in each dimension, divided by the dimension's entry in
    `lengths`. In a categorical dimension (`is_categorical`) the distance of different values is 1.
    `noise` is the variance of losses at the same point.
    """

    is_categorical: Flags
    lengths: Floats
    noise: float

    def __call__(self, points: Floats, others: Floats) -> Floats:
        """Return the covariances: a row per point of `points`, a column per point of `others`."""
        return _matern(_squares(points, others, self.is_categorical) @ self.lengths**-2.0)


@dataclass(frozen=True, slots=True)
class GaussianProcess:
    """A kernel and the observations: points, their losses, and the noise variance of each loss.

    `factor` is the Cholesky factor of the losses' covariance.
    """

    kernel: Kernel
    points: Floats
    losses: Floats
    noises: Floats
    factor: Floats

    @classmethod
    def of(
        cls, kernel: Kernel, points: Floats, losses: Floats, noises: Floats | None = None
    ) -> GaussianProcess:
        """Return the process with these observations. Without `noises`, the noise is the kernel's."""
        if noises is None:
            noises = np.full(len(points), kernel.noise)
        factor = np.asarray(np.linalg.cholesky(kernel(points, points) + np.diag(noises)))
        return cls(kernel, points, losses, noises, factor)

    def believing(self, points: Floats) -> GaussianProcess:
        """Return a process that treats its predictions at these points as further observations without noise.

        The new process then has no uncertainty at these points. Source: the "kriging believer" of Ginsbourger et
        al., "Kriging is Well-Suited to Parallelize Optimization", 2010.
        """
        expected, _ = self.predict(points)
        return GaussianProcess.of(
            self.kernel,
            np.vstack([self.points, points]),
            np.append(self.losses, expected),
            np.append(self.noises, np.full(len(points), MIN_NOISE)),
        )

    def predict(self, points: Floats) -> tuple[Floats, Floats]:
        """Return mean and standard deviation of the loss at each point, without noise."""
        covariances = self.kernel(points, self.points)
        mean = covariances @ cho_solve((self.factor, True), self.losses)
        explained = solve_triangular(self.factor, covariances.T, lower=True)
        variance = np.maximum(1 - (explained**2).sum(axis=0), MIN_VARIANCE)
        return mean, np.sqrt(variance)

    def log_expected_improvement(self, points: Floats) -> Floats:
        """Return the logarithm of each point's expected improvement: the mean of max(0, least loss - loss).

        In a nearly converged search, the improvement itself underflows to 0 for the majority of points (Ament
        et al., "Unexpected Improvements to Expected Improvement for Bayesian Optimization", NeurIPS 2023).
        With mean 0, deviation 1 and a least loss of 0 the result is log 0.3989.
        """
        mean, deviation = self.predict(points)
        z = (self.losses.min() - mean) / deviation
        return log_improvement(z) + np.log(deviation)


def log_improvement(z: Floats) -> Floats:
    """Return log(phi(z) + z Phi(z)), which is accurate also for z far below 0.

    phi and Phi are the density and the distribution function of the standard normal distribution.
    """
    log_density = -(z**2) / 2 - math.log(2 * math.pi) / 2
    low, high = np.minimum(z, -1), np.maximum(z, -1)
    shrunk = np.log1p(low * erfcx(-low / math.sqrt(2)) * math.sqrt(math.pi / 2))
    plain = np.log(np.exp(-(high**2) / 2) / math.sqrt(2 * math.pi) + high * ndtr(high))
    return np.asarray(np.where(z < -1, log_density + shrunk, plain))


def fit_kernel(points: Floats, losses: Floats, is_categorical: Flags) -> Kernel:
    """Return the most probable kernel for the observations."""
    num_dims = points.shape[1]
    squares = _squares(points, points, is_categorical)
    first = np.append(np.full(num_dims, math.log(FIRST_LENGTH)), LOG_NOISE_MEAN)
    bounds = [(math.log(MIN_LENGTH), math.log(MAX_LENGTH))] * num_dims
    found = minimize(
        negative_log_posterior,
        first,
        args=(squares, losses),
        jac=True,
        method="L-BFGS-B",
        bounds=[*bounds, (math.log(MIN_NOISE), math.log(MAX_NOISE))],
        options={"maxiter": MAX_FIT_STEPS},
    ).x
    return Kernel(
        is_categorical=is_categorical, lengths=np.exp(found[:-1]), noise=math.exp(found[-1])
    )


def negative_log_posterior(
    logarithms: Floats, squares: Floats, losses: Floats
) -> tuple[float, Floats]:
    """Return the negative log posterior, up to a constant, and its gradient.

    `logarithms` are those of the lengths and, last, of the noise. `squares` are the squared distances, of shape
    (points, points, dimensions). Source of the gradient: Rasmussen and Williams, "Gaussian Processes for Machine
    Learning", equation 5.9.
    """
    inverses, noise = np.exp(-2 * logarithms[:-1]), math.exp(logarithms[-1])
    root = np.sqrt(5 * (squares @ inverses))
    decay = np.exp(-root)
    identity = np.eye(len(losses))
    factor = np.linalg.cholesky((1 + root + root**2 / 3) * decay + noise * identity)
    weights = cho_solve((factor, True), losses)
    slope = np.outer(weights, weights) - cho_solve((factor, True), identity)
    by_length = np.tensordot(slope * (5 / 6) * (1 + root) * decay, squares, 2) * inverses
    by_noise = np.trace(slope) * noise / 2
    likelihood = -losses @ weights / 2 - np.log(np.diag(factor)).sum()
    mean, deviation = _prior(len(logarithms) - 1)
    off = (logarithms - mean) / deviation
    gradient = off / deviation - np.append(by_length, by_noise)
    return float((off**2).sum() / 2 - likelihood), gradient


def _prior(num_dims: int) -> tuple[Floats, Floats]:
    """Return the means and the standard deviations of the prior.

    Each array has one value per dimension, for the logarithm of its length, and a last value for the
    logarithm of the noise. The mean lengths grow with the number of dimensions.
    """
    length = math.sqrt(2) + math.log(num_dims) / 2
    mean = np.append(np.full(num_dims, length), LOG_NOISE_MEAN)
    return mean, np.append(np.full(num_dims, math.sqrt(3)), LOG_NOISE_DEVIATION)


def _squares(points: Floats, others: Floats, is_categorical: Flags) -> Floats:
    gaps = points[:, None, :] - others[None, :, :]
    return np.where(is_categorical, gaps != 0, gaps**2)


def _matern(squares: Floats) -> Floats:
    root = np.sqrt(5 * squares)
    return np.asarray((1 + root + root**2 / 3) * np.exp(-root))
