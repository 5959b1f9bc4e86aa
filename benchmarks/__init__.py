"""Benchmarks of agentmem: `python -m benchmarks` from the root of the project."""
