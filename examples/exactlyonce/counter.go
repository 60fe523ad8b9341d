package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/millrace/changefeed/feed"
	_ "modernc.org/sqlite" // the driver "sqlite"
)

// openTotals opens the database with the totals. A transaction locks the database at its beginning, because the mark
// must not change between reading and writing.
func openTotals(file string) (*sql.DB, error) {
	db,
		err := sql.Open("sqlite",
		"file:"+file+"?_txlock=immediate&_pragma=busy_timeout(10000)&_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)")
	if err != nil {
		return nil, err
	}
	_, err = db.Exec(`
		CREATE TABLE IF NOT EXISTS totals (city TEXT PRIMARY KEY, orders INTEGER NOT NULL);
		CREATE TABLE IF NOT EXISTS marks (
			city  TEXT PRIMARY KEY,
			epoch INTEGER NOT NULL, -- of the owner that wrote it
			lsn   INTEGER NOT NULL, -- every change before this LSN is done,
			items TEXT NOT NULL     -- and of those with this LSN these versions, a JSON array
		)`)
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return db, nil
}

// counter is a handler whose effect happens exactly once: the handler counts the orders of each city.
type counter struct {
	db *sql.DB
}

var errFenced = errors.New("the lease has had a later owner")

// Handle counts the changes of a batch in a single transaction.
func (h *counter) Handle(ctx context.Context, b *feed.Batch) error {
	tx, err := h.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	for _, c := range b.Changes {
		if err := count(ctx, tx, b.Epoch, c); err != nil {
			return fmt.Errorf("count order %s of %s: %w", c.ID, c.PartitionKey, err)
		}
	}
	return tx.Commit()
}

// count counts an order that has not been counted yet.
func count(ctx context.Context, tx *sql.Tx, epoch int64, c feed.Change) error {
	m, err := markOf(ctx, tx, c.PartitionKey)
	switch {
	case err != nil:
		return err
	case epoch < m.epoch:
		return errFenced
	case !m.pass(c):
		return nil
	}
	items, err := json.Marshal(m.items)
	if err != nil {
		return err
	}
	if _, err = tx.ExecContext(ctx, `INSERT OR REPLACE INTO marks VALUES (?, ?, ?, ?)`, c.PartitionKey, epoch, m.lsn,
		items); err != nil {
		return err
	}
	_, err = tx.ExecContext(ctx, `INSERT INTO totals VALUES (?, 1) ON CONFLICT DO UPDATE SET orders = orders + 1`,
		c.PartitionKey)
	return err
}

// mark records how far the changes of a partition key have been processed.
type mark struct {
	epoch int64
	lsn   int64
	items []string
}

func markOf(ctx context.Context, tx *sql.Tx, key feed.PartitionKey) (m mark, err error) {
	var items []byte
	err = tx.QueryRowContext(ctx, `SELECT epoch, lsn, items FROM marks WHERE city = ?`, key).Scan(&m.epoch, &m.lsn,
		&items)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return m, nil
	case err != nil:
		return m, err
	}
	return m, json.Unmarshal(items, &m.items)
}

// pass moves the mark to a change, and reports whether the change is new. All changes of a transaction have the same
// LSN. If the handler has failed on the transaction too often, its changes come individually, and id and ETag
// distinguish them.
func (m *mark) pass(c feed.Change) bool {
	version := c.ID + c.ETag
	if c.LSN < m.lsn || c.LSN == m.lsn && slices.Contains(m.items, version) {
		return false
	}
	if c.LSN > m.lsn {
		m.lsn, m.items = c.LSN, nil
	}
	m.items = append(m.items, version)
	return true
}

// total reads how many orders of a city were counted.
func total(ctx context.Context, db *sql.DB, key feed.PartitionKey) (n int, err error) {
	err = db.QueryRowContext(ctx, `SELECT orders FROM totals WHERE city = ?`, key).Scan(&n)
	if errors.Is(err, sql.ErrNoRows) {
		err = nil
	}
	return n, err
}
