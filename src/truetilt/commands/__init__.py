"""The work behind the terminal's commands (sample, resume, infill, steer, compare, demo); only `real_digits` prints."""
