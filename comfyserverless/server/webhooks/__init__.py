"""Take webhooks from what is submitted, and say what became of a prompt in their calls."""
