"""`python -m truetilt` is `truetilt`."""

from .cli import main

main()
