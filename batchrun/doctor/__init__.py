"""`batchrun doctor`: what a run would find on this machine, and what to do about what would be in its way."""
