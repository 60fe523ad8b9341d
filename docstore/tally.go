package docstore

import (
	"context"
	"errors"
	"fmt"

	"github.com/millrace/changefeed/docstore/internal/engine"
)

// A tally is the number of living versions in a stretch of a log: versions that are not superseded and are no
// deletes. With tallies, a backlog of millions is counted without being read. The committer stores the tallies
// together with the group that changes them, so a state of the engine contains both the versions and their tallies,
// even after a crash.
//
// A cell is the stretch of a tally. A row is the set of cells stored under the same key. A count adds up rows, and
// reads the versions of the cell in which the count begins. Therefore cells are small, because a batch of 100 writes
// has a single LSN. And a row has several cells, because in a large container each overwrite changes another row.
const (
	cellLSNs = 64
	rowCells = 16
)

// row contains the tallies of consecutive cells. A row without versions is not stored.
type row [rowCells]int64

// tallies keeps the tallies of a container. Only the committer uses tallies, except for the field cells.
type tallies struct {
	c     *Container
	cells cells
	rows  map[tallyAt]row // recently used rows, as in the engine
	// rows changed by the present group; while the container is being counted, the changes themselves
	dirty map[tallyAt]row

	// Containers of older stores have no tallies at first. While their versions are being counted, the changes of all
	// groups are added up here.
	meanwhile map[tallyAt]row
	on        bool
}

// maxRows limits the rows that a container holds in memory, to about 3 MB.
const maxRows = 1 << 14

// cells is the number of LSNs in a cell. Its methods compute cells and rows: a cell contains the LSNs (end-cells,
// end].
type cells int64

// end returns the last LSN of the cell that contains an LSN.
func (n cells) end(lsn int64) int64 { return (lsn + int64(n) - 1) / int64(n) * int64(n) }

// row returns the row and the cell that contain an LSN.
func (n cells) row(lsn int64) (row int64, cell int) {
	i := (lsn - 1) / int64(n)
	return i / rowCells, int(i % rowCells)
}

// ends returns the last LSN of a cell.
func (n cells) ends(row int64, cell int) int64 {
	return (row*rowCells + int64(cell) + 1) * int64(n)
}

// lives is a change of a tally: a version was added, or is not alive any more.
type lives struct {
	c  *Container
	at addr
	n  int64
}

// countLiving records that n more versions live at an address; n is 1 or -1.
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

// addLiving adds n to the tally of an address. While the tallies of an older store are being counted, changes are
// collected separately and added at the end.
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

// readRow returns the engine's row.
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

// flushRows puts the changed rows into a write. If the write fails, the store fails, so the rows in memory may be
// ahead of the write.
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
func tallyAll(db *DB) {
	for _, c := range db.Containers() {
		// Without tallies a backlog is counted version by version. So if the disk fails or the store is closed, only
		// this speed-up is missing.
		_ = c.tallies.buildTallies(life{db.stop})
	}
}

// buildTallies builds the container's tallies. buildTallies counts in a view, outside the committer, and then adds
// the changes of the groups after the view.
func (t *tallies) buildTallies(ctx context.Context) error {
	if t.c.layout.Load().tallied {
		return nil
	}
	var v engine.View
	// This step runs even if the store is being closed, because otherwise the view would stay open.
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

// countRows counts the versions in a view with the primary index, which contains exactly the living versions, and
// closes the view.
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
