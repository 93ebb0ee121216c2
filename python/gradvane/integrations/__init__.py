"""Callbacks for trainers. Each module needs its library; docs/integrations.md shows them."""
