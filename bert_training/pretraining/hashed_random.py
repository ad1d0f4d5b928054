"""Random numbers without a state: each is a hash of counters such as (seed, epoch, instance, purpose, position).

Equal counters give equal numbers on every machine and with every version of numpy.
"""

import numpy as np

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX1, _MIX2 = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_S30, _S27, _S31, _S11 = (np.uint64(bits) for bits in (30, 27, 31, 11))


def random_bits(*counters: int | np.ndarray) -> np.ndarray:
    """64 random bits (uint64) for each element of the broadcast ``counters``, which are integers of up to 64 bits.

    The bits are a hash of all counters in their order: each one goes through the generator splitmix64 (Steele, Lea,
    Flood: Fast splittable pseudorandom number generators, OOPSLA 2014).
    """
    state = np.zeros((), np.uint64)
    for counter in counters:
        state = continue_hash(state, counter)
    return state


def continue_hash(state: np.ndarray, counter: int | np.ndarray) -> np.ndarray:
    """``random_bits(..., counter)``, given the bits ``state`` of the counters before it."""
    # numpy refuses to convert a negative Python int to uint64, but not an int64.
    counter = np.asarray(counter, np.int64).astype(np.uint64)
    with np.errstate(over="ignore"):
        mixed = (state + counter + np.uint64(1)) * _GOLDEN
        mixed = (mixed ^ (mixed >> _S30)) * _MIX1
        mixed = (mixed ^ (mixed >> _S27)) * _MIX2
        return mixed ^ (mixed >> _S31)


def uniform(bits: np.ndarray) -> np.ndarray:
    """float64 in [0, 1) from the upper 53 of 64 random bits."""
    return (bits >> _S11).astype(np.float64) * 2.0**-53


def below(bits: np.ndarray, bound: int | np.ndarray) -> np.ndarray:
    """int64 in [0, bound); the probabilities differ from uniform by at most a factor of 1 + bound / 2**53."""
    return (uniform(bits) * bound).astype(np.int64)
