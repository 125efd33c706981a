"""The work behind the terminal's commands: sample, resume, infill, steer, compare, humanise, demo.

What they say is printed in `cli/`; only `real_digits`, a command of its own for those who make the package, prints.
"""
