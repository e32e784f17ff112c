"""What is learnt in each stage of a training: examples and losses. Never here: optimizers, files."""
