"""The Grafana dashboards, written with grafana-foundation-sdk's typed builders."""
