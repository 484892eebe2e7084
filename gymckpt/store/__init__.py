"""The artifact store: one interface, its back ends, its client and its server."""
