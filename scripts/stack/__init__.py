"""Prometheus and Alertmanager beside a training, for the demo stack and the drill."""
