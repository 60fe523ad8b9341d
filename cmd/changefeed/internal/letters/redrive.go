package letters

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/millrace/changefeed/admin"
	"github.com/millrace/changefeed/cmd/changefeed/internal/place"
	"github.com/millrace/changefeed/cmd/changefeed/internal/report"
	"github.com/millrace/changefeed/cmd/changefeed/internal/terminal"
	"github.com/millrace/changefeed/cmd/changefeed/internal/unit"
	"github.com/millrace/changefeed/cmd/changefeed/internal/usage"
	"github.com/millrace/changefeed/deadletters"
	"github.com/millrace/changefeed/feed"
)

// Only the lease owner of a key's range can handle the key's changes again. The command writes a request among the
// leases, and the owner writes the outcome into the request.

// LeasesOf returns the address of the lease container for letters: the flag --leases or, for letters in a container,
// the default lease container.
func LeasesOf(settings place.Settings, at Place, flag string) (leases place.Address, err error) {
	switch {
	case flag != "":
		if leases, err = settings.Parse("--leases", flag); err != nil {
			return leases, usage.Error{Err: err}
		}
	case at.File != "":
		return leases,
			usage.Error{Err: errors.New("--leases is missing: the letters are in a file: want the address of the " +
				"unit's lease container")}
	default:
		leases = at.Address.Beside(unit.DefaultContainer)
	}
	// The request would be in a store that this process has opened, so no processor could open the store.
	if leases.Dir != "" {
		return leases,
			usage.Error{Err: fmt.Errorf("the leases are in the store %s, and while this command has the store open, no "+
				"processor could answer: want the letters and leases at the address of changefeed serve", leases.Dir)}
	}
	return leases, nil
}

// A Redrive lets the processors of a unit handle letters again.
type Redrive struct {
	Query
	Letters Place
	Leases  place.Address // of the lease container; see [LeasesOf]
	Wait    time.Duration // how long to wait for an answer, for each letter or key
	Opener  *place.Opener
}

// Commands returns the commands about the unit.
func (r *Redrive) Commands() unit.Commands {
	c := r.commands(r.Letters)
	c.Leases = r.Leases.String()
	return c
}

// maxUnserved is how many letters or keys of the same lease in a row may remain unserved before the other letters of
// that lease are skipped.
const maxUnserved = 3

// question is a request to the processors of the unit.
type question struct {
	answer Answer
	change admin.FailedChange // of the letter; zero for a key
	ask    func(ctx context.Context) (deadletters.Outcome, error)
}

// askEach sends the requests in turn, and calls each with every answer. A request that is not served does not stop the
// others. But if no processor seems to serve a lease, the other requests of that lease are skipped. What became of all
// is a line in the history of the unit.
func (r *Redrive) askEach(ctx context.Context, source feed.Source, store feed.LeaseStore, action admin.Action,
	all []question, each func(Answer) error,
) error {
	leaseOf, err := finder(ctx, source, store)
	if err != nil {
		return err
	}
	line := lineOf(action, all)
	err = r.askInTurn(ctx, leaseOf, all, func(a Answer) error {
		if a.Result == isHandled {
			line.Done++
		} else {
			line.Failed = cmp.Or(line.Failed, string(a.Cause), a.Result)
		}
		if err := each(a); err != nil {
			return fmt.Errorf("write answer: %w", err)
		}
		return nil
	})
	if len(all) == 0 {
		return err
	}
	if err != nil {
		line.Failed = cmp.Or(line.Failed, err.Error())
	}
	return errors.Join(err, admin.Open(source, store, r.By).Record(ctx, line))
}

// askInTurn sends the requests, and calls each with every answer.
func (r *Redrive) askInTurn(ctx context.Context, leaseOf func(key feed.PartitionKey) string, all []question,
	each func(Answer) error,
) error {
	inVain := map[string]int{}
	for _, q := range all {
		a, lease := q.answer, leaseOf(feed.PartitionKey(q.answer.Key))
		if a.Result = isUnasked; inVain[lease] < maxUnserved {
			a.setOutcome(r.askWithin(ctx, q.ask))
		}
		if inVain[lease]++; a.Result != isUnserved && a.Result != isUnasked {
			inVain[lease] = 0
		}
		if err := each(a); err != nil {
			return err
		}
		if ctx.Err() != nil { // the command was interrupted
			return context.Cause(ctx)
		}
	}
	return nil
}

// finder returns a function that returns the lease of a key, according to the present leases. All keys with unknown
// leases count as keys of the same lease.
func finder(ctx context.Context, source feed.Source, store feed.LeaseStore) (of func(feed.PartitionKey) string,
	err error,
) {
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

// Retry sends requests to handle the selected letters again, in order, and calls each with every result. Without IDs,
// held letters are skipped, because these are handled automatically after the letters before them. Naming a held
// letter is a usage error.
func (r *Redrive) Retry(ctx context.Context, each func(Answer) error) error {
	failed, err := r.failedLetters(ctx)
	if err != nil {
		return err
	}
	source, leases, err := r.findUnit(ctx)
	if err != nil {
		return err
	}
	return r.retryEach(ctx, source, leases, failed, each)
}

// failedLetters returns the letters to retry.
func (r *Redrive) failedLetters(ctx context.Context) ([]feed.DeadLetter, error) {
	_, letters, err := r.Read(ctx, r.Opener, r.Letters)
	if err != nil {
		return nil, err
	}
	asked, err := r.gatherNamed(letters)
	if err != nil {
		return nil, err
	}
	isHeld := func(l feed.DeadLetter) bool { return l.Disposition == feed.DispositionHeld }
	// A held change would overtake the earlier failed change, which --hold must prevent.
	if i := slices.IndexFunc(asked, isHeld); i >= 0 && len(r.IDs) > 0 {
		return nil,
			usage.Error{Err: fmt.Errorf("ID is %s: it is held behind a change of %s that has failed: want the ID of "+
				"that, or %s to go on without it", asked[i].ID, asked[i].Change.PartitionKey,
				r.Commands().Complete("changefeed dlq release --key KEY", string(asked[i].Change.PartitionKey)))}
	}
	return slices.DeleteFunc(asked, isHeld), nil
}

// retryEach sends a request for each letter.
func (r *Redrive) retryEach(ctx context.Context, source feed.Source, store feed.LeaseStore, asked []feed.DeadLetter,
	each func(Answer) error,
) error {
	var ids []string
	for _, l := range asked {
		ids = append(ids, l.ID)
	}
	short := shortIDs(ids)
	var all []question
	for _, l := range asked {
		all = append(all, question{
			answer: Answer{ID: report.Known(l.ID), short: short[l.ID], Key: json.RawMessage(l.Change.PartitionKey)},
			change: changeOf(l),
			ask: func(ctx context.Context) (deadletters.Outcome, error) {
				return deadletters.Redrive(ctx, source, store, l.Change.PartitionKey, l.ID)
			},
		})
	}
	return r.askEach(ctx, source, store, admin.ActionRetry, all, each)
}

// Release lets keys continue without their failed changes, and calls each with every result. The keys are those of
// the letters with the IDs or, without IDs, the key of the query. If any of the keys is not held, Release returns an
// error and releases none.
func (r *Redrive) Release(ctx context.Context, each func(Answer) error) error {
	keys, err := r.heldKeys(ctx)
	if err != nil {
		return err
	}
	source, leases, err := r.findUnit(ctx)
	if err != nil {
		return err
	}
	letters, err := r.allLetters(ctx)
	if err != nil {
		return err
	}
	for _, key := range keys {
		if err := r.checkHeld(ctx, leases, letters, key); err != nil {
			return err
		}
	}
	return r.releaseEach(ctx, source, leases, keys, each)
}

// releaseEach sends a request for each key.
func (r *Redrive) releaseEach(ctx context.Context, source feed.Source, store feed.LeaseStore, keys []feed.PartitionKey,
	each func(Answer) error,
) error {
	var all []question
	for _, key := range keys {
		all = append(all, question{
			answer: Answer{Key: json.RawMessage(key)},
			ask: func(ctx context.Context) (deadletters.Outcome, error) {
				return deadletters.Release(ctx, source, store, key)
			},
		})
	}
	return r.askEach(ctx, source, store, admin.ActionRelease, all, each)
}

// Withdraw withdraws the requests for the key of the query, or for all keys of the unit if the key is empty, and
// returns their number.
func (r *Redrive) Withdraw(ctx context.Context) (int, error) {
	_, leases, err := r.findUnit(ctx)
	if err != nil {
		return 0, err
	}
	return deadletters.Withdraw(ctx, leases, r.Key)
}

// heldKeys returns the keys to release, each once.
func (r *Redrive) heldKeys(ctx context.Context) (keys []feed.PartitionKey, err error) {
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

// allLetters returns the letters of the unit or of the key, whatever their IDs.
func (r *Redrive) allLetters(ctx context.Context) ([]feed.DeadLetter, error) {
	q := r.Query
	q.IDs = nil
	_, letters, err := q.Read(ctx, r.Opener, r.Letters)
	if err != nil {
		return nil, err
	}
	return gather(letters)
}

// unsaid is how long a key may be held before its lease records this: until the lease is renewed.
const unsaid = 5 * time.Minute

// checkHeld refuses a key that is not held, which is usually a mistake. A key's letters may have been dropped, which
// does not end the hold. If its letters are held but its lease does not record the hold, a processor of another
// vendor may have removed the record.
func (q Query) checkHeld(ctx context.Context, leases feed.LeaseStore, letters []feed.DeadLetter,
	key feed.PartitionKey,
) error {
	records, _, err := leases.List(ctx)
	if err != nil {
		return err
	}
	says := func(r feed.Record) bool { return slices.Contains(admin.HeldKeys(r), string(key)) }
	waits := func(l feed.DeadLetter) bool {
		return l.Change.PartitionKey == key && (l.Disposition == feed.DispositionHeld || time.Since(l.Parked) < unsaid)
	}
	if slices.ContainsFunc(records, says) || slices.ContainsFunc(letters, waits) {
		return nil
	}
	return fmt.Errorf("key %s is not held: no lease of unit %q holds it, and no letter of the key is held",
		terminal.OneLine(string(key)), q.Name)
}

// findUnit finds the unit of the letters by its leases.
func (r *Redrive) findUnit(ctx context.Context) (feed.Source, feed.LeaseStore, error) {
	leases, err := r.Opener.Open(ctx, r.Leases)
	if err != nil {
		return nil, nil, err
	}
	among, err := r.candidates(ctx, leases)
	if err != nil {
		return nil, nil, err
	}
	of, store, err := unit.Find(ctx, leases, among, unit.OfLetters(r.Name))
	if err != nil {
		return nil, nil, err
	}
	return of.Source, store, nil
}

// candidates returns the containers that the unit may read.
func (r *Redrive) candidates(ctx context.Context, leases *place.Container) ([]*place.Container, error) {
	if r.Source == "" {
		return r.Opener.Neighbours(ctx, leases)
	}
	at, err := r.Opener.Parse("--source", r.Source)
	if err != nil {
		return nil, usage.Error{Err: err}
	}
	c, err := r.Opener.Open(ctx, at)
	return []*place.Container{c}, err
}

// askWithin limits the wait for a processor.
func (r *Redrive) askWithin(ctx context.Context, ask func(ctx context.Context) (deadletters.Outcome,
	error),
) (deadletters.Outcome, error) {
	ctx, cancel := context.WithTimeout(ctx, r.Wait)
	defer cancel()
	return ask(ctx)
}
