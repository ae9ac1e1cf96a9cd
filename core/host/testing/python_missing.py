"""Needs a package that nobody has."""

import gpulift_no_such_package  # noqa: F401
