package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log"
	"os"

	_ "modernc.org/sqlite" // the driver "sqlite"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/feed"
)

// product is an item of the container. After a delete, the text is empty.
type product struct{ Text string }

type index struct{ *sql.DB }

// openIndex opens the file of an index. The row of an item in docs has the LSN of its version. The row stays after a
// delete.
func openIndex(name string) index {
	db := must(sql.Open("sqlite", "file:"+name+".sqlite?_txlock=immediate&_pragma=busy_timeout(60000)"))
	must(db.Exec(`PRAGMA journal_mode = WAL;
		CREATE TABLE IF NOT EXISTS docs (row INTEGER PRIMARY KEY, key TEXT, id TEXT, lsn INTEGER, UNIQUE (key, id));
		CREATE VIRTUAL TABLE IF NOT EXISTS texts USING fts5 (text)`))
	return index{db}
}

// handle writes a batch in a transaction. If the index has a newer version of an item, the item is passed over. The
// versions of an item with the same LSN are always in the same batch, so the last of them stays.
func (x index) handle(ctx context.Context, _ *feed.Batch, items []changefeed.Item[product]) error {
	tx, err := x.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	for _, it := range items {
		var row int64
		err := tx.QueryRowContext(ctx, `INSERT INTO docs (key, id, lsn) VALUES (?, ?, ?) ON CONFLICT DO UPDATE
			SET lsn = excluded.lsn WHERE excluded.lsn >= lsn RETURNING row`, it.PartitionKey, it.ID, it.LSN).Scan(&row)
		if err == nil {
			_, err = tx.ExecContext(ctx, `INSERT OR REPLACE INTO texts (rowid, text) VALUES (?, ?)`, row, it.Value.Text)
		}
		if err != nil && !errors.Is(err, sql.ErrNoRows) {
			return err
		}
	}
	fmt.Println(len(items), "changes indexed, up to", items[len(items)-1].ID)
	return tx.Commit()
}

// build makes a new index live: build adds the items that existed before the unit, because all versions and deletes
// shows only changes from then on, waits until the unit has caught up, and writes the name of the index to "live".
func (x index) build(ctx context.Context, products feed.Source, leases feed.LeaseStore) {
	var err error
	isLive := func() (live bool) { // also if another instance has done it meanwhile
		err = errors.Join(err, x.QueryRowContext(ctx, `PRAGMA user_version`).Scan(&live))
		return live
	}
	from := feed.Position{Start: feed.FromBeginning()}
	for page, wrong := range changefeed.Pull(ctx, products, feed.FullRange(), from, changefeed.PullOptions{}) {
		if err = errors.Join(err, wrong); isLive() || err != nil {
			break
		}
		err = changefeed.Items(x.handle).Handle(ctx, &feed.Batch{Changes: page.Changes})
	}
	if !isLive() && err == nil {
		if err = changefeed.CaughtUp(ctx, products, leases); !isLive() && err == nil {
			temporary := fmt.Sprintf("%s.%d", *name, os.Getpid())
			must(0, errors.Join(os.WriteFile(temporary, []byte(*name), 0o644), os.Rename(temporary, "live")))
			must(x.Exec(`PRAGMA user_version = 1`))
		}
	}
	if err != nil && ctx.Err() == nil {
		log.Fatalf("build index %s: %v", *name, err)
	}
}

// search searches the live index.
func search(words string) (found string, err error) {
	live := openIndex(string(must(os.ReadFile("live"))))
	err = live.QueryRow(`SELECT coalesce(group_concat(id || ' ' || text, char(10)), 'nothing found') FROM (
		SELECT id, text FROM texts JOIN docs ON row = texts.rowid WHERE texts MATCH ? ORDER BY rank LIMIT 10)`,
		words).Scan(&found)
	return found, err
}
