"""python -m gradvane: the same as the command."""

from gradvane.cli.main import main

if __name__ == "__main__":
    main()
