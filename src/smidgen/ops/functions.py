"""Named functions of one number and their slopes, in float64: what `Lookup` tabulates."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Real = NDArray[np.float64]
Formula = Callable[[Real, float, float], Real]
_erf = np.vectorize(math.erf, otypes=[np.float64])
FAR = 700.0  # beyond it exp leaves float64


@dataclass(frozen=True)
class Function:
    """y = value(x, alpha, beta) and dy/dx; at a kink the slope is one of the two beside it."""

    value: Formula
    slope: Formula


def _exp(x: Real) -> Real:
    e: Real = np.exp(np.clip(x, -FAR, FAR))
    return e


def _sigmoid(x: Real) -> Real:
    return 0.5 + 0.5 * np.tanh(x / 2)


def _sigmoid_slope(x: Real) -> Real:
    return _sigmoid(x) * (1 - _sigmoid(x))


def _softplus(x: Real) -> Real:
    y: Real = np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))
    return y


def _normal(x: Real) -> Real:
    """The standard normal distribution's cumulative probability."""
    y: Real = 0.5 + 0.5 * _erf(x / math.sqrt(2))
    return y


def _density(x: Real) -> Real:
    return np.exp(-np.minimum(x * x / 2, FAR)) / math.sqrt(2 * math.pi)


def _elu(x: Real, alpha: float) -> Real:
    return np.where(x > 0, x, alpha * np.expm1(np.minimum(x, 0)))


def _elu_slope(x: Real, alpha: float) -> Real:
    return np.where(x > 0, 1.0, alpha * np.exp(np.minimum(x, 0)))


def _inside(x: Real, low: float, high: float) -> Real:
    """One strictly between the limits, zero elsewhere."""
    inside: Real = ((x > low) & (x < high)).astype(np.float64)
    return inside


def _inverse(x: Real) -> Real:
    return np.where(x > LEAST, 1 / np.maximum(x, LEAST), 0.0)


LEAST = 1e-12  # stands for 0 and all below it where a function has no value there


def _base(x: Real, exponent: float) -> Real:
    """What is raised to a power: a root needs numbers above 0, a quotient some that are not 0."""
    if exponent != int(exponent):
        return np.maximum(x, LEAST)
    return x if exponent >= 0 else np.where(np.abs(x) < LEAST, LEAST, x)


def _power(x: Real, exponent: float) -> Real:
    y: Real = _base(x, exponent) ** exponent
    return y


def _power_slope(x: Real, exponent: float) -> Real:
    """None where the base had to be changed."""
    base = _base(x, exponent)
    return np.where(base == x, exponent * base ** (exponent - 1) if exponent else 0.0, 0.0)


GELU_INNER, GELU_CUBE = math.sqrt(2 / math.pi), 0.044715


def _gelu_tanh_slope(x: Real) -> Real:
    t: Real = np.tanh(GELU_INNER * (x + GELU_CUBE * x**3))
    return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * GELU_INNER * (1 + 3 * GELU_CUBE * x * x)


def _mish_slope(x: Real) -> Real:
    t: Real = np.tanh(_softplus(x))
    return t + x * (1 - t * t) * _sigmoid(x)


FUNCTIONS: Mapping[str, Function] = {
    "abs": Function(lambda x, a, b: np.abs(x), lambda x, a, b: np.sign(x)),
    "celu": Function(
        lambda x, a, b: np.where(x > 0, x, a * np.expm1(np.minimum(x, 0) / a)),
        lambda x, a, b: np.where(x > 0, 1.0, np.exp(np.minimum(x, 0) / a)),
    ),
    "clip": Function(lambda x, a, b: np.clip(x, a, b), lambda x, a, b: _inside(x, a, b)),
    "elu": Function(lambda x, a, b: _elu(x, a), lambda x, a, b: _elu_slope(x, a)),
    "erf": Function(lambda x, a, b: _erf(x), lambda x, a, b: 2 / math.sqrt(math.pi) * _exp(-x * x)),
    "exp": Function(lambda x, a, b: _exp(x), lambda x, a, b: _exp(x)),
    "gelu": Function(lambda x, a, b: x * _normal(x), lambda x, a, b: _normal(x) + x * _density(x)),
    "gelu_tanh": Function(
        lambda x, a, b: 0.5 * x * (1 + np.tanh(GELU_INNER * (x + GELU_CUBE * x**3))),
        lambda x, a, b: _gelu_tanh_slope(x),
    ),
    "hard_sigmoid": Function(lambda x, a, b: np.clip(a * x + b, 0, 1), lambda x, a, b: a * _inside(a * x + b, 0, 1)),
    "hard_swish": Function(
        lambda x, a, b: x * np.clip(x / 6 + 0.5, 0, 1),
        lambda x, a, b: np.where(x <= -3, 0.0, np.where(x < 3, x / 3 + 0.5, 1.0)),
    ),
    "leaky_relu": Function(lambda x, a, b: np.where(x > 0, x, a * x), lambda x, a, b: np.where(x > 0, 1.0, a)),
    "log": Function(lambda x, a, b: np.log(np.maximum(x, LEAST)), lambda x, a, b: _inverse(x)),
    "mish": Function(lambda x, a, b: x * np.tanh(_softplus(x)), lambda x, a, b: _mish_slope(x)),
    "power": Function(lambda x, a, b: _power(x, a), lambda x, a, b: _power_slope(x, a)),
    "selu": Function(lambda x, a, b: b * _elu(x, a), lambda x, a, b: b * _elu_slope(x, a)),
    "sigmoid": Function(lambda x, a, b: _sigmoid(x), lambda x, a, b: _sigmoid_slope(x)),
    "silu": Function(lambda x, a, b: x * _sigmoid(x), lambda x, a, b: _sigmoid(x) + x * _sigmoid_slope(x)),
    "softplus": Function(lambda x, a, b: _softplus(x), lambda x, a, b: _sigmoid(x)),
    "softsign": Function(lambda x, a, b: x / (1 + np.abs(x)), lambda x, a, b: (1 + np.abs(x)) ** -2.0),
    "tanh": Function(lambda x, a, b: np.tanh(x), lambda x, a, b: 1 - np.tanh(x) ** 2),
}
