package engine

import (
	"errors"
	"fmt"
	"slices"

	"github.com/cockroachdb/pebble/v2"
)

// Get appends the value of a key to dst, and reports whether the key exists.
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

// Find is Get while a store is being opened. Find reads only blocks verified by survey.verifyHeads. Get would also
// read the filters of tables, and if they were damaged, the engine would notice this only after the library has
// changed files.
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

// NewBatch returns an empty batch with room for so many bytes.
func (e *Engine) NewBatch(size int) Batch { return Batch{b: e.db.begin(size), e: e} }

// Set sets the value of a key. The value may come in two parts. Changes of a batch cannot fail before its commit.
func (w Batch) Set(key, value []byte, more ...byte) {
	k, v, filled := w.b.reserve(len(key), len(value)+len(more))
	copy(k, key)
	copy(v[copy(v, value):], more)
	_ = filled.Finish()
}

// Drop removes a key.
func (w Batch) Drop(key []byte) { w.b.drop(key) }

// DropSized removes a key whose value has so many bytes. The library uses the size when it chooses tables to merge.
func (w Batch) DropSized(key []byte, size int) { w.b.dropSized(key, size) }

// DropRange removes the keys [from, to).
func (w Batch) DropRange(from, to []byte) { w.b.dropRange(from, to) }

// Commit applies the changes and returns when they are on the disk. After an error the engine accepts no more
// batches, because only the next opening of the store shows whether this batch reached the disk.
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
	if err := w.e.guard.err(); err != nil { // the guard has reported a success to the library
		return err
	}
	return w.b.Close()
}

// Cursor walks keys in order. Key and value are valid until the next step; copy them if you need them longer.
type Cursor struct {
	it   iterator
	e    *Engine
	uses bool // counts as a user of the engine; a cursor of a view does not
}

// View is a state of the engine, for several cursors and gets that must agree. If the engine is being closed, a view
// is empty.
type View struct {
	s state // nil if the engine was being closed
	e *Engine
}

// View takes the present state. The engine waits for its views before closing.
func (e *Engine) View() View {
	if !e.use.enter() {
		return View{}
	}
	return View{e.db.snapshot(), e}
}

// Close frees the view.
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

// First moves to the first key and reports whether there is a key.
func (c *Cursor) First() bool { return c.it.First() }

// Next moves to the next key and reports whether there is a key.
func (c *Cursor) Next() bool { return c.it.Next() }

// Seek moves to the first key that is not less than key, and reports whether there is such a key.
func (c *Cursor) Seek(key []byte) bool { return c.it.SeekGE(key) }

// Key returns the key at the cursor.
func (c *Cursor) Key() []byte { return c.it.Key() }

// Err returns the error that ended the walk. Without this check the error would look like the end of the keys.
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

// CloseInto closes the cursor in a deferred call. The engine reports a failed read when a cursor is closed; this
// error becomes the function's error, unless the function has an error already.
func (c *Cursor) CloseInto(err *error, verb string) {
	if cerr := c.Close(); cerr != nil && *err == nil {
		*err = fmt.Errorf("%s: %w", verb, cerr)
	}
}

// Usage returns how many bytes the engine takes on the disk, in memory for writes, and in memory for cached blocks.
func (e *Engine) Usage() (disk, memory, cache int64) {
	if !e.use.enter() {
		return 0, 0, 0
	}
	defer e.use.leave()
	m := e.db.measure()
	return m.disk, m.buffers, m.cache
}

// After returns the smallest key above all keys with this prefix, or nil if there is no such key.
func After(prefix []byte) []byte {
	key := slices.Clone(prefix)
	for i := len(key) - 1; i >= 0; i-- {
		if key[i]++; key[i] != 0 {
			return key[:i+1]
		}
	}
	return nil
}
