"""What keeps a program from noticing that Gradvane is in its process: children, forks, threads, warnings."""
