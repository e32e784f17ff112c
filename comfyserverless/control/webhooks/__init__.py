"""Call an address of the tenant's when a prompt has ended: what may be called, how it is signed and tried."""
