"""Snapshots of a training's state in host memory, and the way back to one."""
