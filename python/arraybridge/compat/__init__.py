"""What the 0.2 line of this package's name has beside conversions: scaling, stacking, cleanup of caches."""
