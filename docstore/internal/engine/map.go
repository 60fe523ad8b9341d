package engine

import (
	"errors"
	"fmt"
	"slices"

	"github.com/cockroachdb/pebble/v2"
)

// Get appends the value of a key to dst, and reports whether there is one.
func (e *Engine) Get(dst, key []byte) ([]byte, bool, error) {
	if !e.use.enter() {
		return dst, false, ErrClosed
	}
	defer e.use.leave()
	value, closer, err := e.db.Get(key)
	if errors.Is(err, pebble.ErrNotFound) {
		return dst, false, nil
	}
	if err != nil {
		return dst, false, e.readError(err)
	}
	dst = append(dst, value...)
	return dst, true, closer.Close()
}

// Find is Get while a store is being opened. Only blocks are read that survey.verifyHeads
// has verified, which Get would not do: Get also reads the filters of tables, and damage
// found that late would come after the library has changed files.
func (e *Engine) Find(key []byte) (value []byte, found bool, err error) {
	c, err := e.Cursor(key, append(slices.Clone(key), 0))
	if err != nil {
		return nil, false, err
	}
	defer c.CloseInto(&err, "close cursor")
	if !c.First() {
		return nil, false, c.Err()
	}
	v, err := c.Value()
	return slices.Clone(v), true, err
}

// Batch is a set of changes that the engine applies as a whole.
type Batch struct {
	b changes
	e *Engine
}

// NewBatch makes a batch with room for so many bytes.
func (e *Engine) NewBatch(size int) Batch { return Batch{b: e.db.begin(size), e: e} }

// Set gives a key a value, which may come in two parts. No change of a batch can fail
// before its commit.
func (w Batch) Set(key, value []byte, more ...byte) {
	k, v, filled := w.b.reserve(len(key), len(value)+len(more))
	copy(k, key)
	copy(v[copy(v, value):], more)
	_ = filled.Finish()
}

// Drop removes a key.
func (w Batch) Drop(key []byte) { w.b.drop(key) }

// DropSized removes a key whose value has so many bytes, of which the library makes use
// when it chooses what to merge.
func (w Batch) DropSized(key []byte, size int) { w.b.dropSized(key, size) }

// DropRange removes the keys [from, to).
func (w Batch) DropRange(from, to []byte) { w.b.dropRange(from, to) }

// Commit applies the changes and returns when the disk has them. After an error the
// engine takes no more, because whether this batch reached the disk is not known
// until the store is opened again.
func (w Batch) Commit() (err error) {
	if err := w.e.guard.err(); err != nil {
		return err
	}
	defer func() {
		if r := recover(); r != nil {
			w.e.stuck.Store(true)
			w.e.guard.breakWith(fmt.Errorf("%v", r))
			err = w.e.guard.err()
		}
	}()
	if err = w.b.apply(w.e.sync); err != nil {
		w.e.guard.breakWith(err)
	}
	if err := w.e.guard.err(); err != nil { // the library was shown a success
		return err
	}
	return w.b.Close()
}

// Cursor walks keys in order. Key and value are valid until the next step: keep copies.
type Cursor struct {
	it   iterator
	e    *Engine
	uses bool // counts as a user of the engine; a cursor of a view does not
}

// View is one state of the engine, for several cursors and gets that must agree. The
// view of a closing engine is empty.
type View struct {
	s state // nil when the engine was closing
	e *Engine
}

// View takes the present state. The engine is not closed before its views are.
func (e *Engine) View() View {
	if !e.use.enter() {
		return View{}
	}
	return View{e.db.snapshot(), e}
}

// Close gives the view back.
func (v View) Close() error {
	if v.s == nil {
		return nil
	}
	defer v.e.use.leave()
	return v.s.Close()
}

// Get returns a copy of the value of a key.
func (v View) Get(key []byte) ([]byte, bool, error) {
	if v.s == nil {
		return nil, false, ErrClosed
	}
	value, closer, err := v.s.Get(key)
	if errors.Is(err, pebble.ErrNotFound) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, v.e.readError(err)
	}
	return slices.Clone(value), true, closer.Close()
}

// Cursor walks the keys [from, to) of the view.
func (v View) Cursor(from, to []byte) (*Cursor, error) {
	if v.s == nil {
		return nil, ErrClosed
	}
	it, err := v.s.iterate(from, to)
	if err != nil {
		return nil, v.e.readError(err)
	}
	return &Cursor{it, v.e, false}, nil
}

// Cursor walks the keys [from, to) of the present state.
func (e *Engine) Cursor(from, to []byte) (*Cursor, error) {
	if !e.use.enter() {
		return nil, ErrClosed
	}
	it, err := e.db.iterate(from, to)
	if err != nil {
		e.use.leave()
		return nil, e.readError(err)
	}
	return &Cursor{it, e, true}, nil
}

// First moves to the first key and reports whether there is one.
func (c *Cursor) First() bool { return c.it.First() }

// Next moves to the next key and reports whether there is one.
func (c *Cursor) Next() bool { return c.it.Next() }

// Seek moves to the first key from this one on and reports whether there is one.
func (c *Cursor) Seek(key []byte) bool { return c.it.SeekGE(key) }

// Key is the key at the cursor.
func (c *Cursor) Key() []byte { return c.it.Key() }

// Err returns the error that ended the walk, which looks like the end of the keys.
func (c *Cursor) Err() error { return c.e.readError(c.it.Error()) }

// Value reads the value at the cursor.
func (c *Cursor) Value() ([]byte, error) {
	value, err := c.it.ValueAndErr()
	return value, c.e.readError(err)
}

// Close ends the walk.
func (c *Cursor) Close() error {
	if c.uses {
		defer c.e.use.leave()
	}
	return c.e.readError(c.it.Close())
}

// CloseInto closes the cursor in a deferred call: an error of closing, which is where the
// engine reports a failed read, becomes that of the function unless there was one
// before.
func (c *Cursor) CloseInto(err *error, verb string) {
	if cerr := c.Close(); cerr != nil && *err == nil {
		*err = fmt.Errorf("%s: %w", verb, cerr)
	}
}

// Usage is how many bytes the engine takes on the disk, for writes in memory, and for blocks that were read.
func (e *Engine) Usage() (disk, memory, cache int64) {
	if !e.use.enter() {
		return 0, 0, 0
	}
	defer e.use.leave()
	m := e.db.measure()
	return m.disk, m.buffers, m.cache
}

// After returns the least key above all keys with this prefix, nil if there is none.
func After(prefix []byte) []byte {
	key := slices.Clone(prefix)
	for i := len(key) - 1; i >= 0; i-- {
		if key[i]++; key[i] != 0 {
			return key[:i+1]
		}
	}
	return nil
}
