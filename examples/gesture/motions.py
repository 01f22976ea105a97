"""What an accelerometer on a wrist records of six gestures, made by code, for users who each move in their own way."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

import smidgen as sm
from smidgen.data import Samples

GESTURES = ("circle", "lift", "shake", "swipe", "tap", "twist")
MOMENTS, PER_SECOND = 64, 40  # 1.6 seconds, three axes
Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class User:
    """How somebody moves, and how the device sits on the wrist."""

    worn: Array  # a rotation, [3, 3]
    tempo: float
    strength: float
    tremor: float  # g


def draw_user(rng: np.random.Generator, turned: float) -> User:
    """Somebody whose device is turned by about so many degrees from how most wear it."""
    axis = rng.normal(size=3)
    angle = np.radians(turned * rng.uniform(0.8, 1.2))
    return User(_rotation(axis, angle), rng.uniform(0.75, 1.3), rng.uniform(0.6, 1.5), rng.uniform(0.02, 0.1))


def draw_gestures(user: User, count: int, rng: np.random.Generator) -> Samples:
    """So many recordings of a user, every gesture in turn."""
    labels = tuple(i % len(GESTURES) for i in range(count))
    return Samples(tuple(record(GESTURES[label], user, rng).astype(np.float32) for label in labels), labels)


def draw_data(learn: int, test: int, turned: float, seed: int) -> sm.Data:
    """So many recordings of one new user to learn from and to test with."""
    rng = np.random.default_rng(seed)
    user = draw_user(rng, turned)
    return sm.Data("a new user", GESTURES, draw_gestures(user, learn, rng), draw_gestures(user, test, rng))


def record(gesture: str, user: User, rng: np.random.Generator) -> Array:
    """One recording, [moments, axes], in g: what the hand does, turned as the device is worn, with gravity."""
    t = (np.arange(MOMENTS) / PER_SECOND - rng.uniform(0.25, 0.55)) * user.tempo * rng.uniform(0.85, 1.15)
    up = np.tile([0.0, 0.0, 1.0], (MOMENTS, 1))
    moved = _moved(gesture, t, rng) * user.strength * rng.uniform(0.7, 1.3)
    if gesture == "twist":  # the hand turns, and gravity with it
        up = np.stack([0 * t, np.sin(_pulse(t - 0.3, 0.25) * 1.6), np.cos(_pulse(t - 0.3, 0.25) * 1.6)], axis=1)
    drift = np.cumsum(rng.normal(0, 0.012, (MOMENTS, 3)), axis=0)
    held = _rotation(rng.normal(size=3), rng.normal(0, 0.15)) @ user.worn
    felt: Array = (moved + up + drift) @ held.T + rng.normal(0, user.tremor, (MOMENTS, 3))
    return felt


def _moved(gesture: str, t: Array, rng: np.random.Generator) -> Array:
    """The hand's acceleration, [moments, 3]: along the arm, across it, and up."""
    within = _pulse(t - 0.35, 0.3)
    still = 0 * t
    side = float(rng.choice((-1, 1)))
    if gesture == "circle":
        turn = 2 * np.pi * 1.5 * t + rng.uniform(0, 6)
        return np.stack([0.6 * np.cos(turn), side * 0.6 * np.sin(turn), still], axis=1) * within[:, None]
    if gesture == "lift":
        return np.stack([still, still, 0.8 * _stroke(t - 0.3, 0.16)], axis=1)
    if gesture == "shake":
        swing = np.sin(2 * np.pi * rng.uniform(4, 6) * t)
        return np.stack([0.3 * swing, 0.9 * swing, still], axis=1) * within[:, None]
    if gesture == "swipe":
        return np.stack([still, side * 0.9 * _stroke(t - 0.3, 0.13), 0.1 * within], axis=1)
    if gesture == "tap":
        gap = rng.uniform(0.2, 0.35)
        return np.stack([0.2 * within, still, -1.1 * (_pulse(t - 0.1, 0.03) + _pulse(t - 0.1 - gap, 0.03))], axis=1)
    return np.stack([0.1 * within, 0.1 * within, still], axis=1)


def _pulse(t: Array, width: float) -> Array:
    return np.exp(-0.5 * (t / width) ** 2)


def _stroke(t: Array, width: float) -> Array:
    """Speeding up, then slowing down."""
    return -t / width * _pulse(t, width) * 1.65


def _rotation(axis: Array, angle: float) -> Array:
    """Rodrigues' formula."""
    x, y, z = axis / np.linalg.norm(axis)
    k = np.array([[0, -z, y], [z, 0, -x], [-y, x, 0]])
    turn: Array = np.eye(3) + np.sin(angle) * k + (1 - np.cos(angle)) * k @ k
    return turn
