"""`python -m smidgen`: the command line, where no script of its name is on the path."""

from smidgen.cli import main

if __name__ == "__main__":
    main()
