"""What people use for rewards instead, as their papers define it, on the same counters: to compare with."""
