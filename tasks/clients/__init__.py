"""Servers that more than one room asks."""
