"""What is measured: benchmarks show the figures, tests hold them to a claim, and neither imports the other."""
