"""Asks a real Prometheus what the dashboards ask, over a run whose numbers are known."""
