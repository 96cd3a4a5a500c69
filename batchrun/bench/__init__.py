"""Benchmarks as commands: workloads, ways to run them, and figures side by side."""
