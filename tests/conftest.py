"""What holds for all tests: hypothesis looks for bugs and not at the clock."""

from hypothesis import HealthCheck, settings

settings.register_profile("batchrun", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True)
settings.load_profile("batchrun")
