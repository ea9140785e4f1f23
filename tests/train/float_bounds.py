"""How far apart two ways of computing the same number may come out, from rounding alone.

Which kernel multiplies two matrices, and in which order it adds, differs with the processor, the number of threads and
the shape. No tolerance measured on one machine holds on all of them. These bounds hold for every order of addition,
with and without fused multiply-adds: Nicholas J. Higham, Accuracy and Stability of Numerical Algorithms, 2nd edition,
SIAM 2002, section 3.1 (inner products and gamma, lemma 3.1), section 3.4 (how it adds up, lemma 3.3), section 3.5
(matrix products).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager

import torch

FAULT = 100
"""A fault must come out at least this many times over the bound. Then no test passes on it, whatever the rounding."""


def gamma(roundings: int, dtype: torch.dtype = torch.float32) -> float:
    """Higham's gamma_n = n u / (1 - n u): what n roundings one after the other can do, relative to the value.

    An inner product of n terms is off by at most gamma_n times the sum of its terms' absolute values. Steps in a row
    add up: gamma_j + gamma_k + gamma_j gamma_k <= gamma_(j+k) (lemma 3.3).
    """
    unit_roundoff = torch.finfo(dtype).eps / 2
    return roundings * unit_roundoff / (1 - roundings * unit_roundoff)


def times_over(one: torch.Tensor, other: torch.Tensor, bound: torch.Tensor | float) -> float:
    """The largest difference of an element in multiples of its bound: at most 1 where rounding explains them all.

    A difference where nothing may differ is infinitely many times over, and so is a number that is none.
    """
    difference = (one.double() - other.double()).abs()
    over = torch.where(difference == 0, 0.0, difference / bound)
    return float(over.nan_to_num(nan=math.inf).max())


@contextmanager
def weights_off_by_rounding(module: torch.nn.Module, seed: int) -> Iterator[None]:
    """The module with every weight off by gamma of its row's length, up or down at random.

    For what goes through many layers nobody can add up a bound that is of use. But an inner product that was rounded is
    the exact one of weights that are each off by at most this (section 3.1, backward error), and a row of weights is as
    long as the sum. So what such weights move is about what rounding may move, propagated by the module itself. It is
    an estimate, as rounding picks other such weights for each token; a generous one, as here every weight is off by the
    most, where the roundings of a sum mostly cancel.
    """
    before = {name: parameter.detach().clone() for name, parameter in module.named_parameters()}
    generator = torch.Generator().manual_seed(seed)
    try:
        with torch.no_grad():
            for parameter in module.parameters():
                sign = 2 * torch.randint(2, parameter.shape, generator=generator) - 1
                parameter *= 1 + gamma(parameter.shape[-1], parameter.dtype) * sign
        yield
    finally:
        with torch.no_grad():
            for name, parameter in module.named_parameters():
                parameter.copy_(before[name])
