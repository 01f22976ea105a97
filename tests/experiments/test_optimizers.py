"""The baselines' optimizers: PyTorch's, many runs at once, and LARS by its formula."""

from __future__ import annotations

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.baselines.optimizers import Optimizer, OptimizerName, corrections
from tests.support.tiers import examples

torch.set_num_threads(1)  # pytest's workers share the cores
OPTIMIZERS: tuple[OptimizerName, ...] = ("sgd", "momentum", "adam")


def torchs(name: OptimizerName, w: torch.Tensor, rate: float, decay: float) -> torch.optim.Optimizer:
    if name == "adam":
        return torch.optim.Adam([w], lr=rate, weight_decay=decay)
    return torch.optim.SGD([w], lr=rate, momentum=0.9 if name == "momentum" else 0.0, weight_decay=decay)


@settings(max_examples=examples(30))
@given(
    name=st.sampled_from(OPTIMIZERS),
    rates=st.lists(st.floats(1e-4, 0.5), min_size=1, max_size=4),
    decay=st.sampled_from([0.0, 0.01, 0.3]),
    seed=st.integers(0, 100),
)
def test_the_optimizers_are_pytorchs_in_every_run(
    name: OptimizerName, rates: list[float], decay: float, seed: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    w = torch.randn((len(rates), 3, 4), generator=generator)
    oracles = [w[i].clone().requires_grad_() for i in range(len(rates))]
    theirs = [torchs(name, oracle, rate, decay) for oracle, rate in zip(oracles, rates, strict=True)]
    ours = Optimizer(name, [w], torch.full((len(rates),), decay), torch.zeros(len(rates)))
    for step in range(1, 8):
        g = torch.randn(w.shape, generator=generator) * 10.0 ** (step - 4)
        ours.step([g], torch.tensor(rates), torch.tensor(corrections(step)))
        for i, (oracle, optimizer) in enumerate(zip(oracles, theirs, strict=True)):
            oracle.grad = g[i].clone()
            optimizer.step()
            assert torch.allclose(w[i], oracle.detach(), rtol=1e-4, atol=1e-5 * float(g.abs().max()))


def test_lars_scales_each_tensor_by_its_norms() -> None:
    rng = np.random.default_rng(0)
    first, rates, decays, trusts = rng.normal(size=(2, 3, 4)), (0.1, 2.0), (0.0, 0.05), (0.001, 0.02)
    w = torch.tensor(first, dtype=torch.float32)
    ours = Optimizer("lars", [w], torch.tensor(decays), torch.tensor(trusts))
    expected, velocity = first.copy(), np.zeros_like(first)
    for step in range(5):
        g = rng.normal(size=first.shape)
        ours.step([torch.tensor(g, dtype=torch.float32)], torch.tensor(rates), torch.ones(2))
        for i, (rate, decay, trust) in enumerate(zip(rates, decays, trusts, strict=True)):
            norm = np.linalg.norm(expected[i])
            local = trust * norm / (np.linalg.norm(g[i]) + decay * norm)
            velocity[i] = 0.9 * velocity[i] + rate * local * (g[i] + decay * expected[i])
            expected[i] -= velocity[i]
        assert np.allclose(w.numpy(), expected, rtol=1e-5, atol=1e-6), step


def test_lars_takes_a_whole_step_where_a_tensor_begins_at_zero() -> None:
    w, g = torch.zeros(1, 3), torch.tensor([[1.0, -2.0, 3.0]])
    Optimizer("lars", [w], torch.zeros(1), torch.full((1,), 0.001)).step([g], torch.tensor([0.5]), torch.ones(2))
    assert torch.equal(w, -0.5 * g)
