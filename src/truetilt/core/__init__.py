"""What every other folder speaks in: types and protocols, errors, checks of arguments, rows of logits, files."""
