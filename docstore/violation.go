package docstore

import (
	"context"
	"errors"
	"fmt"
)

// Check verifies every invariant of the store: that each document has its version in a
// log that its partition reads, and each version its document, mark or successor; that
// the indexes by id, expiry and unique key say the same as the documents; that LSNs and
// times are in order; that ranges tile the key space; that counts are right. It reads
// everything, in one state, while the store goes on.
func (db *DB) Check() error {
	found, err := db.CheckAll(life{db.stop}, nil)
	if err != nil {
		return err
	}
	if len(found) > 0 {
		var errs []error
		for _, v := range found {
			errs = append(errs, errors.New(v.String()))
		}
		return fmt.Errorf("check store %s: %w: %w", db.dir, ErrCorrupt, errors.Join(errs...))
	}
	return nil
}

// Violation is an invariant that does not hold.
type Violation struct {
	Container string `json:"container"`
	Text      string `json:"text"`
}

// String is a line.
func (v Violation) String() string { return fmt.Sprintf("container %q: %s", v.Container, v.Text) }

// CheckAll is [DB.Check] for who has a context, wants to know how many records have been
// read meanwhile, and lists what was found, 20 violations at most. It holds up no writer, but
// what is deleted meanwhile stays on the disk until it ends.
func (db *DB) CheckAll(ctx context.Context, progress func(records int64)) (found []Violation, err error) {
	if err := db.closed(); err != nil {
		return nil, err
	}
	k := &checker{db: db, ctx: ctx, progress: progress, view: db.eng.view()}
	defer func() { err = errors.Join(err, k.view.close()) }()
	err = k.each([]byte{tableContainer}, []byte{tableContainer + 1}, func(key, value []byte) error {
		num, _, err := splitKey(key)
		if err != nil {
			return err
		}
		l, _, err := decodeLayout(value)
		if err != nil {
			return err
		}
		return k.container(num, l)
	})
	if err == nil {
		err = k.strays()
	}
	if err != nil {
		return k.found, fmt.Errorf("check store %s: %w", db.dir, err)
	}
	return k.found, k.read(0)
}

const checkStep = 4096 // records between two looks at what goes on

// read counts records, and finds out whether to go on.
func (k *checker) read(n int64) error {
	k.records += n
	if n > 0 && k.records%checkStep != 0 {
		return nil
	}
	if k.progress != nil {
		k.progress(k.records)
	}
	if err := k.db.closed(); err != nil {
		return err
	}
	return context.Cause(k.ctx)
}
