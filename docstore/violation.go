package docstore

import (
	"context"
	"errors"
	"fmt"
)

// Check verifies every invariant of the store: each document has its version in a log
// that its partition reads, and each version its document, mark or successor; the
// indexes by id, expiry and unique key agree with the documents; LSNs and times are in
// order; ranges tile the key space; counts are right. Check reads everything, in one
// state, while the store is in use. Violations are [ErrCorrupt].
func (db *DB) Check() error {
	found, err := db.CheckAll(life{db.stop}, nil)
	if errors.Is(err, context.Canceled) { // only the end of the store ends this life
		return ErrClosed
	}
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

// String returns a line for an operator.
func (v Violation) String() string { return fmt.Sprintf("container %q: %s", v.Container, v.Text) }

// CheckAll is [DB.Check] with a context, which lists the violations, 20 at most, and
// calls progress, if not nil, with the number of records read so far. Writers are not
// held up, but the room of data deleted meanwhile is not given back until the check
// ends.
func (db *DB) CheckAll(ctx context.Context, progress func(records int64)) (found []Violation, err error) {
	if err := db.closed(); err != nil {
		return nil, err
	}
	k := &checker{db: db, ctx: ctx, progress: progress, view: db.eng.View()}
	defer func() { err = errors.Join(err, k.view.Close()) }()
	err = k.eachKey([]byte{tableContainer}, []byte{tableContainer + 1}, func(key, value []byte) error {
		num, _, err := splitKey(key)
		if err != nil {
			return err
		}
		l, _, err := decodeLayout(value)
		if err != nil {
			return err
		}
		return k.checkContainer(num, l)
	})
	if err == nil {
		err = k.refuseStrays()
	}
	if err != nil {
		return k.found, fmt.Errorf("check store %s: %w", db.dir, err)
	}
	return k.found, k.countRecords(0)
}

const checkStep = 4096 // records between two looks at what goes on

// countRecords counts records and returns why the check must end, every checkStep records: the
// looks would else cost more than the reading.
func (k *checker) countRecords(n int64) error {
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
