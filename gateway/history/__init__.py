"""The history: ledger lines and sums of usage in the SQL database, copied from the store by the importer."""
