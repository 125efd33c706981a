"""`steer`: one call with a budget that runs a pilot, chooses a route, runs it, checks it, and tells what it did."""
