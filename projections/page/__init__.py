"""A past session as one HTML page that needs nothing but a browser."""

from projections.page.page import render

__all__ = ["render"]
