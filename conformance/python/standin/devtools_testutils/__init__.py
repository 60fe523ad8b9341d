"""Stands in for a package that the SDK's tests import, and that no registry has: of it they use two names."""
