"""Load and run tiny autoencoders (TAESD): small networks that do nearly what a family's autoencoder does."""
