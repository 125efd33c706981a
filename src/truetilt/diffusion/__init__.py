"""What a diffusion is: noise schedules, processes and their reversal, laws of a step, kernels, guidance."""
