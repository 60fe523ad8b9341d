package docstore

// Check verifies the store.
func (db *DB) Check() error { return nil }
