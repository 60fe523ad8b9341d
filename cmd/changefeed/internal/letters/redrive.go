package letters

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/millrace/changefeed/deadletters"
	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/host/place"
	"github.com/millrace/changefeed/internal/host/terminal"
	"github.com/millrace/changefeed/internal/host/unit"
	"github.com/millrace/changefeed/internal/host/usage"
)

// Only the owner of the range that a key is in can handle its changes again. It is asked
// by a request among the leases, and writes the outcome into it.

// LeasesOf is the address of the lease container of letters: that of the flag --leases or, beside letters in a
// container, the default one.
func LeasesOf(at Place, flag string) (leases place.Address, err error) {
	switch {
	case flag != "":
		if leases, err = place.Parse("--leases", flag); err != nil {
			return leases, usage.Error{Err: err}
		}
	case at.File != "":
		return leases, usage.Error{Err: errors.New("--leases is missing: the letters are in a file: want the address of the unit's lease container")}
	default:
		leases = at.Address.Beside(unit.DefaultContainer)
	}
	// The request would lie in a store that this process has open and no processor can
	// open.
	if leases.Dir != "" {
		return leases, usage.Error{Err: fmt.Errorf("the leases are in the store %s, which one process has open: no processor could serve this: want the address of changefeed serve", leases.Dir)}
	}
	return leases, nil
}

// A Redrive has letters handled again, by the processors of their unit.
type Redrive struct {
	Query
	Letters Place
	Leases  place.Address // of the lease container, see [LeasesOf]
	Wait    time.Duration // for an answer, anew for each letter or key
	Opener  *place.Opener
}

// maxUnserved is how many letters or keys of one lease in a row are asked for in vain before its others are left out.
const maxUnserved = 3

// question is one request to the processors of the unit.
type question struct {
	answer Answer
	ask    func(ctx context.Context) (deadletters.Outcome, error)
}

// ask asks one question after the other, and calls each with every answer. One that is not served does not stop the others,
// unless nobody seems to serve its lease: then the others of that lease are left out.
func (r *Redrive) ask(ctx context.Context, leaseOf func(key feed.PartitionKey) string, all []question, each func(Answer) error) error {
	inVain := map[string]int{}
	for _, q := range all {
		a, lease := q.answer, leaseOf(feed.PartitionKey(q.answer.Key))
		if a.Result = isUnasked; inVain[lease] < maxUnserved {
			a.fill(r.within(ctx, q.ask))
		}
		if inVain[lease]++; a.Result != isUnserved && a.Result != isUnasked {
			inVain[lease] = 0
		}
		if err := each(a); err != nil {
			return fmt.Errorf("write answer: %w", err)
		}
		if ctx.Err() != nil { // the command is interrupted
			return context.Cause(ctx)
		}
	}
	return nil
}

// finder returns a function that finds the lease of a key, as the leases are now. Keys of unknown leases count as those of
// one lease.
func finder(ctx context.Context, source feed.Source, store feed.LeaseStore) (of func(feed.PartitionKey) string, err error) {
	records, _, err := store.List(ctx)
	if err != nil {
		return nil, err
	}
	locator, ok := source.(feed.Locator)
	return func(key feed.PartitionKey) string {
		if !ok {
			return ""
		}
		epk, err := locator.Locate(ctx, key)
		for _, l := range records {
			if err == nil && l.Kind == feed.KindLease && l.State == feed.StateLive && l.Range.Holds(epk) {
				return l.Token
			}
		}
		return ""
	}, nil
}

// Retry has the letters that are meant handled again, in their order, and calls each with what became of them. Without IDs it
// leaves out those that are held: they are handled by themselves when those before them are. A held letter that is named is
// an error of usage.
func (r *Redrive) Retry(ctx context.Context, each func(Answer) error) error {
	asked, err := r.failed(ctx)
	if err != nil {
		return err
	}
	source, leases, err := r.unit(ctx)
	if err != nil {
		return err
	}
	return r.retry(ctx, source, leases, asked, each)
}

// failed are the letters to retry.
func (r *Redrive) failed(ctx context.Context) ([]feed.DeadLetter, error) {
	_, letters, err := r.Read(ctx, r.Opener, r.Letters)
	if err != nil {
		return nil, err
	}
	asked, err := r.named(letters)
	if err != nil {
		return nil, err
	}
	isHeld := func(l feed.DeadLetter) bool { return l.Disposition == feed.DispositionHeld }
	// A held change would pass the one before it that has failed, which is what --hold
	// is there to prevent.
	if i := slices.IndexFunc(asked, isHeld); i >= 0 && len(r.IDs) > 0 {
		return nil, usage.Error{Err: fmt.Errorf("ID is %s: it is held behind a change of %s that has failed: want the ID of that, or changefeed dlq release to go on without it", asked[i].ID, asked[i].Change.PartitionKey)}
	}
	return slices.DeleteFunc(asked, isHeld), nil
}

// retry asks for each letter.
func (r *Redrive) retry(ctx context.Context, source feed.Source, store feed.LeaseStore, asked []feed.DeadLetter, each func(Answer) error) error {
	leaseOf, err := finder(ctx, source, store)
	if err != nil {
		return err
	}
	var ids []string
	for _, l := range asked {
		ids = append(ids, l.ID)
	}
	short := shortIDs(ids)
	var all []question
	for _, l := range asked {
		all = append(all, question{
			answer: Answer{ID: l.ID, short: short[l.ID], Key: json.RawMessage(l.Change.PartitionKey)},
			ask: func(ctx context.Context) (deadletters.Outcome, error) {
				return deadletters.Redrive(ctx, source, store, l.Change.PartitionKey, l.ID)
			},
		})
	}
	return r.ask(ctx, leaseOf, all, each)
}

// Release lets keys go on without the changes of them that have failed, and calls each with what became of them: of the letters
// with the IDs or, without any, the key of the query. If one of them is not held that is an error, and none is released.
func (r *Redrive) Release(ctx context.Context, each func(Answer) error) error {
	keys, err := r.keys(ctx)
	if err != nil {
		return err
	}
	source, leases, err := r.unit(ctx)
	if err != nil {
		return err
	}
	letters, err := r.all(ctx)
	if err != nil {
		return err
	}
	for _, key := range keys {
		if err := r.checkHeld(ctx, leases, letters, key); err != nil {
			return err
		}
	}
	return r.release(ctx, source, leases, keys, each)
}

// release asks for each key.
func (r *Redrive) release(ctx context.Context, source feed.Source, store feed.LeaseStore, keys []feed.PartitionKey, each func(Answer) error) error {
	leaseOf, err := finder(ctx, source, store)
	if err != nil {
		return err
	}
	var all []question
	for _, key := range keys {
		all = append(all, question{
			answer: Answer{Key: json.RawMessage(key)},
			ask: func(ctx context.Context) (deadletters.Outcome, error) {
				return deadletters.Release(ctx, source, store, key)
			},
		})
	}
	return r.ask(ctx, leaseOf, all, each)
}

// Withdraw withdraws the requests for the key of the query, or with an empty key for all keys of the unit, and returns their
// number.
func (r *Redrive) Withdraw(ctx context.Context) (int, error) {
	_, leases, err := r.unit(ctx)
	if err != nil {
		return 0, err
	}
	return deadletters.Withdraw(ctx, leases, r.Key)
}

// keys are the keys to release, each once.
func (r *Redrive) keys(ctx context.Context) (keys []feed.PartitionKey, err error) {
	if len(r.IDs) == 0 {
		return []feed.PartitionKey{r.Key}, nil
	}
	_, letters, err := r.Read(ctx, r.Opener, r.Letters)
	if err != nil {
		return nil, err
	}
	all, err := gather(letters)
	for _, l := range all {
		keys = append(keys, l.Change.PartitionKey)
	}
	slices.Sort(keys)
	return slices.Compact(keys), err
}

// all are the letters of the unit or of the key, whatever their IDs.
func (r *Redrive) all(ctx context.Context) ([]feed.DeadLetter, error) {
	q := r.Query
	q.IDs = nil
	_, letters, err := q.Read(ctx, r.Opener, r.Letters)
	if err != nil {
		return nil, err
	}
	return gather(letters)
}

// unsaid is how long a key may be held before its lease says so: until the lease is renewed.
const unsaid = 5 * time.Minute

// checkHeld refuses a key that is not held, which is a mistake most of the time. Its letters may have been dropped, which
// ends no hold; where they are held, a processor of another make may have ended the hold of the lease.
func (q Query) checkHeld(ctx context.Context, leases feed.LeaseStore, letters []feed.DeadLetter, key feed.PartitionKey) error {
	records, _, err := leases.List(ctx)
	if err != nil {
		return err
	}
	says := func(r feed.Record) bool { return slices.Contains(unit.Held(r), string(key)) }
	waits := func(l feed.DeadLetter) bool {
		return l.Change.PartitionKey == key && (l.Disposition == feed.DispositionHeld || time.Since(l.Parked) < unsaid)
	}
	if slices.ContainsFunc(records, says) || slices.ContainsFunc(letters, waits) {
		return nil
	}
	return fmt.Errorf("%s is not held: no lease of unit %q says so, and no letter of it is held", terminal.OneLine(string(key)), q.Name)
}

// unit finds the unit of the letters by its leases.
func (r *Redrive) unit(ctx context.Context) (feed.Source, feed.LeaseStore, error) {
	leases, err := r.Opener.Open(ctx, r.Leases)
	if err != nil {
		return nil, nil, err
	}
	among, err := r.candidates(ctx, leases)
	if err != nil {
		return nil, nil, err
	}
	source, store, err := unit.Find(ctx, leases, among, r.Name)
	if err != nil {
		return nil, nil, err
	}
	return source.Source, store, nil
}

// candidates are the containers that the unit may read.
func (r *Redrive) candidates(ctx context.Context, leases *place.Container) ([]*place.Container, error) {
	if r.Source == "" {
		return r.Opener.Neighbours(ctx, leases)
	}
	at, err := place.Parse("--source", r.Source)
	if err != nil {
		return nil, usage.Error{Err: err}
	}
	c, err := r.Opener.Open(ctx, at)
	return []*place.Container{c}, err
}

// within bounds the wait for a processor.
func (r *Redrive) within(ctx context.Context, ask func(ctx context.Context) (deadletters.Outcome, error)) (deadletters.Outcome, error) {
	ctx, cancel := context.WithTimeout(ctx, r.Wait)
	defer cancel()
	return ask(ctx)
}
