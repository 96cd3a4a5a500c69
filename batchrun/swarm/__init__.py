"""One question to many agents at once: the shared part is computed once, and all decode in one batch."""
