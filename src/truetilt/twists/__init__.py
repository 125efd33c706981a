"""Twists: what a partly masked state is worth on the way to a reward, learned or looked up by completing it."""
