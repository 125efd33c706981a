"""What the commands of the terminal do: sample, resume, infill, demo; and the runner of jobs. They print nothing."""
