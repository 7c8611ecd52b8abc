"""Penstock: a rate-limit server for Envoy."""

from importlib.metadata import version

__version__ = version("penstock-ratelimit")
