"""What holds for all tests: hypothesis looks for bugs and not at the clock; nobody's own profiles change a result."""

import os
import tempfile

from hypothesis import HealthCheck, settings

os.environ["XDG_STATE_HOME"] = tempfile.mkdtemp(prefix="batchrun-tests-")  # subprocesses get it too

settings.register_profile("batchrun", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True)
settings.load_profile("batchrun")
