"""What holds for all tests: hypothesis looks for bugs and not at the clock; nobody's own profiles, settings and copies
of weights change a result."""

import atexit
import os
import shutil
import signal
import tempfile

from hypothesis import HealthCheck, settings

from batchrun.backends.mlx_blas import openblas

signal.signal(signal.SIGINT, signal.default_int_handler)  # where the tests run in the background it is ignored,
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # and every process that they start would ignore it too
folder = tempfile.mkdtemp(prefix="batchrun-tests-")
atexit.register(shutil.rmtree, folder, ignore_errors=True)
for name in ("STATE", "CONFIG", "CACHE"):  # nobody's own; subprocesses get them too
    os.environ[f"XDG_{name}_HOME"] = os.path.join(folder, name.lower())

settings.register_profile("explore", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True)
settings.register_profile("batchrun", settings.get_profile("explore"), derandomize=True)
settings.load_profile("batchrun")  # the same examples each time; `pytest --hypothesis-profile=explore` looks further
openblas()  # before any test imports MLX, which would keep its slow one
