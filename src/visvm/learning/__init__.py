"""Files and labels → sums."""
