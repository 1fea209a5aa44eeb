"""`python -m gateway` is `gateway`."""

from gateway.cli import main

if __name__ == "__main__":
    main()
