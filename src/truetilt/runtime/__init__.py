"""What a run needs of the machine: memory, checkpoints, snapshots, saved results."""
