"""Send what every socket of a tenant gets, so that a crowd of sockets costs no more than it has to."""
