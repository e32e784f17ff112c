"""Put batches together and take them apart."""
