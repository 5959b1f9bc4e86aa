"""The version, read by the build and by `agentmem.__version__`."""

__version__ = "0.1.0"
