"""One file per figure or table of the paper. Each names its jobs, collects their answers and draws them."""
