package docstore

import (
	"context"
	"errors"
	"fmt"

	"github.com/millrace/changefeed/docstore/internal/engine"
)

// A tally is the number of versions that live in a stretch of a log: those that are
// neither superseded nor deletes. A backlog of millions is then counted without reading
// it. The committer stores the tallies with the group that changes them, so that a
// state of the engine has both the versions and their tallies, after a crash too.
//
// A cell is the unit of a tally, and a row has the cells that are stored under one key.
// A count adds up rows, and reads the versions of the one cell in which it begins. So
// cells are small, because a batch of 100 writes has one LSN; and rows are several
// cells, because an overwrite in a large container changes another row each time.
const (
	cellLSNs = 64
	rowCells = 16
)

// row is the tallies of consecutive cells. One without versions is not stored.
type row [rowCells]int64

// tallies keeps the tallies of a container. It is the committer's, but for cells.
type tallies struct {
	c     *Container
	cells cells
	rows  map[tallyAt]row // as they are in the engine, of those used lately
	dirty map[tallyAt]row // as they are to be; while the container is being counted, changes

	// Containers of older stores have no tallies at first. While they are being
	// counted, the changes of all groups are added up here.
	meanwhile map[tallyAt]row
	on        bool
}

// maxRows bounds the rows that a container holds in memory, to about 3 MB.
const maxRows = 1 << 14

// cells is the number of LSNs in a cell. It has the arithmetic of cells and rows: a
// cell holds the LSNs (end-cells, end].
type cells int64

// end is the last LSN of the cell that holds an LSN.
func (n cells) end(lsn int64) int64 { return (lsn + int64(n) - 1) / int64(n) * int64(n) }

// row returns the row and the cell that hold an LSN.
func (n cells) row(lsn int64) (row int64, cell int) {
	i := (lsn - 1) / int64(n)
	return i / rowCells, int(i % rowCells)
}

// ends returns the last LSN of a cell.
func (n cells) ends(row int64, cell int) int64 {
	return (row*rowCells + int64(cell) + 1) * int64(n)
}

// lives is a change of a tally: a version has come to live, or has ceased to.
type lives struct {
	c  *Container
	at addr
	n  int64
}

// countLiving notes that n versions more live at an address, 1 or -1.
func (g *group) countLiving(c *Container, at addr, n int64) {
	g.living = append(g.living, lives{c, at, n})
}

// writeTallies puts the tallies that the group changes into the write.
func (g *group) writeTallies(w engine.Batch) error {
	for _, v := range g.living {
		if err := v.c.tallies.addLiving(v.at, v.n); err != nil {
			for _, v := range g.living {
				clear(v.c.tallies.dirty)
			}
			return err
		}
	}
	for _, v := range g.living {
		v.c.tallies.flushRows(w)
	}
	return nil
}

// addLiving counts n more versions at an address, or fewer. While the tallies of a store of before
// are being counted, changes are kept apart and added at the end.
func (t *tallies) addLiving(at addr, n int64) error {
	if t.meanwhile == nil && !t.on {
		return nil
	}
	number, cell := t.cells.row(at.lsn)
	key := tallyAt{at.log, number}
	r, changed := t.dirty[key]
	if !changed && t.on {
		var err error
		if r, err = t.readRow(key); err != nil {
			return err
		}
	}
	r[cell] += n
	t.dirty[key] = r
	return nil
}

// readRow returns a row as it is in the engine.
func (t *tallies) readRow(key tallyAt) (r row, err error) {
	r, known := t.rows[key]
	if known {
		return r, nil
	}
	value, found, err := t.c.db.eng.Get(nil, tallyKey(t.c.num, key))
	if err == nil && found {
		err = decodeRow(value, &r)
	}
	return r, err
}

func decodeRow(value []byte, r *row) error {
	if err := decodeNumbers(value, r[:]); err != nil {
		return fmt.Errorf("%w: tallies: %w", ErrCorrupt, err)
	}
	return nil
}

// flushRows puts the changed rows into a write. The store fails with a write that fails, so
// the rows in memory may be ahead of the write.
func (t *tallies) flushRows(w engine.Batch) {
	if t.meanwhile != nil {
		for key, r := range t.dirty {
			t.meanwhile[key] = sumOf(t.meanwhile[key], r)
		}
		clear(t.dirty)
		return
	}
	if len(t.rows)+len(t.dirty) > maxRows {
		clear(t.rows)
	}
	for key, r := range t.dirty {
		if r == (row{}) {
			w.Drop(tallyKey(t.c.num, key))
		} else {
			w.Set(tallyKey(t.c.num, key), encodeNumbers(r[:]...))
		}
		t.rows[key] = r
	}
	clear(t.dirty)
}

// tallyAll counts the versions of containers that an older version of this package
// wrote.
func (db *DB) tallyAll() {
	for _, c := range db.Containers() {
		// Without tallies a backlog is counted one by one, so an error of the disk, or
		// the end of the store, leaves only that undone.
		_ = c.tallies.buildTallies(life{db.stop})
	}
}

// buildTallies gives the container its tallies. It counts in a view, outside the committer;
// what the groups after the view change is added.
func (t *tallies) buildTallies(ctx context.Context) error {
	if t.c.layout.Load().tallied {
		return nil
	}
	var v engine.View
	// This step runs even if the store is being closed: the view would else stay open.
	err := t.c.db.committer.runAlone(context.WithoutCancel(ctx), func(*group) error {
		t.meanwhile = map[tallyAt]row{}
		v = t.c.db.eng.View()
		return nil
	})
	if err != nil {
		return err
	}
	rows, err := t.countRows(ctx, v)
	if err != nil {
		return errors.Join(err, t.c.db.committer.runAlone(ctx, func(*group) error { t.meanwhile = nil; return nil }))
	}
	return t.c.db.committer.runAlone(ctx, func(g *group) error {
		if t.c.dropped.Load() {
			return nil
		}
		for key, r := range t.meanwhile {
			rows[key] = sumOf(rows[key], r)
		}
		for key, r := range rows {
			if r != (row{}) {
				g.set(tallyKey(t.c.num, key), encodeNumbers(r[:]...))
			}
		}
		l := t.c.layout.Load().clone()
		l.tallied = true
		return g.storeLayout(t.c, l, func() { t.meanwhile, t.on = nil, true })
	})
}

// sumOf adds two rows, cell by cell.
func sumOf(a, b row) row {
	for i := range a {
		a[i] += b[i]
	}
	return a
}

// countRows counts the versions in a view by the primary index, which has exactly those
// that live, and closes the view.
func (t *tallies) countRows(ctx context.Context, v engine.View) (rows map[tallyAt]row, err error) {
	defer func() { err = errors.Join(err, v.Close()) }()
	from := tableKey(tableDoc, t.c.num, 0)
	it, err := v.Cursor(from, engine.After(from))
	if err != nil {
		return nil, err
	}
	defer it.CloseInto(&err, "close cursor")
	rows = map[tallyAt]row{}
	for n, ok := 0, it.First(); ok; n, ok = n+1, it.Next() {
		if n%4096 == 0 && ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		value, err := it.Value()
		if err != nil {
			return nil, err
		}
		s, err := decodeSlot(value)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrCorrupt, err)
		}
		number, cell := t.cells.row(s.lsn)
		key := tallyAt{s.log, number}
		r := rows[key]
		r[cell]++
		rows[key] = r
	}
	return rows, it.Err()
}
