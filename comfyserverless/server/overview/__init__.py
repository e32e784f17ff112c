"""Put together what the dashboard shows to one sender."""
