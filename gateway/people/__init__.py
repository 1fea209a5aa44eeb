"""Users and how they sign in: memberships, invitations, sessions, identities, admin tokens, personal data."""
