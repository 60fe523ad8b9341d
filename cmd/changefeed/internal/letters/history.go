package letters

import (
	"context"
	"errors"

	"github.com/millrace/changefeed/admin"
	"github.com/millrace/changefeed/cmd/changefeed/internal/place"
	"github.com/millrace/changefeed/cmd/changefeed/internal/unit"
	"github.com/millrace/changefeed/cmd/changefeed/internal/usage"
	"github.com/millrace/changefeed/feed"
)

// What was done with letters is a line in the history of their unit.

// lineOf returns the line of the history for some requests, before their outcome.
func lineOf(action admin.Action, all []question) admin.Entry {
	line := admin.Entry{Action: action, Count: len(all)}
	for i, q := range all {
		if key := feed.PartitionKey(q.answer.Key); i == 0 {
			line.Key = key
		} else if key != line.Key {
			line.Key = ""
		}
		if q.change.ID != "" {
			line.Changes = append(line.Changes, q.change)
		}
	}
	return line
}

// changeOf names the change of a letter.
func changeOf(l feed.DeadLetter) admin.FailedChange {
	return admin.FailedChange{ID: l.Change.ID, Key: l.Change.PartitionKey, LSN: l.Change.LSN}
}

// dropNoter records a drop: of these letters the first done were removed, and then the drop has failed, or not.
type dropNoter func(ctx context.Context, doomed []feed.DeadLetter, done int, failed error) error

// recordDrop adds a drop to the history of the unit. Unless a flag names the leases, the unit may be elsewhere or be
// gone: then there is no line.
func (q Query) recordDrop(o *place.Opener, at Place) dropNoter {
	return func(ctx context.Context, doomed []feed.DeadLetter, done int, failed error) error {
		var all []question
		for _, l := range doomed {
			all = append(all, question{answer: Answer{Key: []byte(l.Change.PartitionKey)}, change: changeOf(l)})
		}
		line := lineOf(admin.ActionDrop, all)
		if line.Done = done; failed != nil {
			line.Failed = failed.Error()
		}
		source, store, err := q.findByLeases(ctx, o, at)
		switch {
		case err == nil:
			return admin.Open(source, store, q.By).Record(ctx, line)
		case q.Leases == "":
			return nil
		}
		return errors.Join(admin.ErrNotRecorded, err)
	}
}

// findByLeases finds the unit of letters by the leases that a flag names, or else by those beside the letters.
func (q Query) findByLeases(ctx context.Context, o *place.Opener, at Place) (feed.Source, feed.LeaseStore, error) {
	if at.File != "" && q.Leases == "" {
		return nil, nil, errors.New("a file of letters does not say where the leases of its unit are")
	}
	leases, err := q.leasesOf(o, at.Address)
	if err != nil {
		return nil, nil, err
	}
	r := Redrive{Query: q, Leases: leases, Opener: o}
	return r.findUnit(ctx)
}

// leasesOf is the address of the leases that a flag names, or of those beside the letters.
func (q Query) leasesOf(o *place.Opener, letters place.Address) (place.Address, error) {
	if q.Leases == "" {
		return letters.Beside(unit.DefaultContainer), nil
	}
	at, err := o.Parse("--leases", q.Leases)
	if err != nil {
		return at, usage.Error{Err: err}
	}
	return at, nil
}
