"""Measures of samples: distances between laws, and the quality of images and texts."""
