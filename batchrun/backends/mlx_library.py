"""The names of mlx-lm that batchrun uses, all of them public.  Takes seconds to import."""

from batchrun.backends.mlx_device import mx  # isort: skip  MLX first, behind OpenBLAS

from mlx_lm import batch_generate, convert
from mlx_lm.models.cache import CacheList, KVCache, make_prompt_cache
from mlx_lm.utils import dequantize_model, load_model

__all__ = [
    "CacheList",
    "KVCache",
    "batch_generate",
    "convert",
    "dequantize_model",
    "load_model",
    "make_prompt_cache",
    "mx",
]
