"""Alert and recording rules for Prometheus, written by a program so that one text serves every window."""
