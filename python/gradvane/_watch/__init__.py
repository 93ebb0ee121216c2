"""Watches training in this process: hooks, and what is made of the events that they bring."""
