"""Three gateways behind nginx with a cluster and PostgreSQL, in network namespaces, while each part fails in turn."""
