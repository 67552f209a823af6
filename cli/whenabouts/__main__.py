"""`python -m whenabouts COMMAND` is `whenabouts COMMAND`."""

from whenabouts.cli import main

if __name__ == "__main__":
    main()
