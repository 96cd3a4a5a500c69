"""The live view of a run: `run --live`.  It only reads: what goes on comes to it as frozen values."""
