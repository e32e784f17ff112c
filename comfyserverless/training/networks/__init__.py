"""The small networks of the demo model, and the widening of its autoencoder. Never here: training, files."""
