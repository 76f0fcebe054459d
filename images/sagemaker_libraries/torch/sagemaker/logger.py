"""The library's logger."""

from __future__ import annotations

import logging
import sys


def get_logger() -> logging.Logger:
    """Return a logger that writes to stdout."""
    logger = logging.getLogger("smp")
    if not logger.handlers:
        handler = logging.StreamHandler(sys.stdout)
        handler.setFormatter(logging.Formatter("%(levelname)s smp: %(message)s"))
        logger.addHandler(handler)
        logger.setLevel(logging.INFO)
        logger.propagate = False
    return logger
