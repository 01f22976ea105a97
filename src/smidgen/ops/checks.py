"""Requirements of ops on their types and attributes, so that no kernel can leave its buffers."""

import math

from smidgen.errors import GraphError
from smidgen.ir import MAX_BYTES, MAX_RANK, Type
from smidgen.numerics import stochastic

INT32_END = 2**31
MOST_SUMMED = 2**30  # sums that become a gradient stay below it, so that a random part can be added in 32 bits
SCALAR = Type((1,), "float32")
LABEL = Type((1,), "int32")
RATE = Type((2,), "int32")
PEAK_BITS = Type((1,), "int32")


def shown(type_: Type) -> str:
    """Return a type as errors name it."""
    return f"{type_.dtype}{list(type_.shape)}"


def check_is(what: str, name: str, found: Type, expected: Type) -> None:
    """Raise GraphError unless an input is of this very type."""
    if found != expected:
        raise GraphError(f"{what} takes {shown(expected)} as its {name}, not {shown(found)}")


def check_dtypes(what: str, dtypes: tuple[str, ...], *types: Type) -> None:
    """Raise GraphError unless every input is of one of these dtypes."""
    for type_ in types:
        if type_.dtype not in dtypes:
            raise GraphError(f"{what} takes {' or '.join(dtypes)}, not {shown(type_)}")


def check_rank(what: str, rank: int, *types: Type) -> None:
    """Raise GraphError unless every input has this many dimensions."""
    for type_ in types:
        if len(type_.shape) != rank:
            raise GraphError(f"{what} takes tensors of {rank} dimensions, not {shown(type_)}")


def check_map(what: str, *types: Type) -> None:
    """Raise GraphError unless every input is a [1, height, width, channels] map."""
    for type_ in types:
        if len(type_.shape) != 4 or type_.shape[0] != 1:
            raise GraphError(f"{what} takes a [1, height, width, channels] map, not {shown(type_)}")


def check_channels(what: str, *types: Type) -> None:
    """Raise GraphError unless every input has a last dimension."""
    for type_ in types:
        if not type_.shape:
            raise GraphError(f"{what} takes tensors with channels, not a single number")


def check_shape(what: str, shape: tuple[int, ...]) -> None:
    """Raise GraphError unless a tensor can have the shape that attributes give."""
    possible = 1 <= len(shape) <= MAX_RANK and all(1 <= d <= MAX_BYTES for d in shape)
    if not possible or math.prod(shape) > MAX_BYTES:
        raise GraphError(f"{what} would give a tensor of shape {list(shape)[:8]}, which is not possible")


def check_gradient(what: str, *types: Type) -> None:
    """Raise GraphError unless every input is an int8 gradient: without a quantization, and so within ±127."""
    for type_ in types:
        if type_.dtype != "int8" or type_.q is not None:
            raise GraphError(f"{what} takes int8 gradients, which carry no quantization, not {shown(type_)}")


def check_repeats(what: str, a: Type, b: Type) -> None:
    """Raise GraphError unless b has a's shape, or repeats along a's leading dimensions."""
    core = b.shape
    while core and core[0] == 1:
        core = core[1:]
    if len(b.shape) > len(a.shape) or a.shape[len(a.shape) - len(core) :] != core:
        raise GraphError(f"{what} of {list(a.shape)} and {list(b.shape)}: the second must match or repeat along it")


def check_factors(what: str, factors: tuple[float, ...], *counts: int) -> None:
    """Raise GraphError unless the number of factors is one of these counts, and all are finite and not negative."""
    if len(factors) not in counts:
        raise GraphError(f"{what} has {len(factors)} factors for {counts[-1]} channels")
    if not all(math.isfinite(f) and f >= 0 for f in factors):
        raise GraphError(f"{what} has a factor that is negative or no number")


def check_step_state(what: str, step_state: Type, *slots: int) -> None:
    """Raise GraphError unless this is a step state that holds the exponents of these gradients."""
    if step_state.dtype != "int32" or len(step_state.shape) != 1 or step_state.size < stochastic.FIRST_LEVEL:
        raise GraphError(f"{what} takes a step state of int32, the step and the seed first, not {shown(step_state)}")
    levels = step_state.size - stochastic.FIRST_LEVEL
    for slot in slots:
        if not 0 <= slot < levels:
            raise GraphError(f"{what} reads exponent {slot} of a step state that holds {levels}")


def check_stream(what: str, stream: int) -> None:
    """Raise GraphError unless C can hold the numbers of a stream and of the next one."""
    if not 0 <= stream < INT32_END - 1:
        raise GraphError(f"{what} draws from stream {stream}; streams are numbered from 0 to {INT32_END - 2}")


def check_sums(what: str, bound: int, end: int = INT32_END) -> None:
    """Raise GraphError unless sums of integers stay below `end`."""
    if not 1 <= bound < end:
        raise GraphError(f"{what} adds up to {bound:,}, beyond 1 … {end - 1:,}; train smaller maps")
