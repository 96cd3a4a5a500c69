"""Where MLX computes, and within which limits.  The one place that imports MLX, behind OpenBLAS.

Other modules take `mx` from here, so that nobody can load MLX before the BLAS that it is to multiply with.
"""

from dataclasses import dataclass

from batchrun.backends.mlx_blas import openblas

openblas()

import mlx.core as mx  # noqa: E402

__all__ = ["MlxOptions", "mx", "on_a_processor", "set_limits"]


@dataclass(frozen=True, slots=True)
class MlxOptions:
    """`chain`: greedy tokens a synchronisation.  `cache_bytes`: freed buffers that MLX may keep for reuse.

    `wired_bytes`: memory that macOS may not page out; None leaves that process-wide limit alone, which has been tied to
    kernel panics.
    """

    chain: int = 8
    cache_bytes: int = 512 << 20
    wired_bytes: int | None = None


def on_a_processor() -> bool:
    """Whether MLX computes on the processor and not on a GPU."""
    return bool(mx.default_device().type == mx.DeviceType.cpu)


def set_limits(options: MlxOptions, threads: int) -> None:
    mx.set_cache_limit(options.cache_bytes)
    if options.wired_bytes is not None:
        mx.set_wired_limit(options.wired_bytes)
    blas = openblas()
    if blas:
        blas.set_threads(threads)
