"""The `gradvane` command."""
