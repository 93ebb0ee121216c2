"""Breaks real trainings, and times how long it takes until somebody is told."""
