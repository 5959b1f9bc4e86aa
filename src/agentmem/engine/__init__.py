"""The encrypted file: keys, connections, transactions, schema, snapshots."""
