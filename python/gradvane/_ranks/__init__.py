"""Norms over all ranks of a sharded model, without a collective."""
