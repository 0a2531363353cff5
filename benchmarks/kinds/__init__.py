"""Made-up schemas of the kinds that people write, and values of them."""
