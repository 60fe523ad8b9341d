package sim

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"iter"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/millrace/changefeed/deadletters"
	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/notes"
	"github.com/millrace/changefeed/internal/pause"
)

// Worlds with dead letters: changes of different keys may be handled in parallel, failing ones are parked, and an
// operator has them handled again. There the model of whole pages, in one order, does not hold; what is done, what is
// parked and the order of each key are checked change by change.

// isPoison reports whether handlers fail on a version each time, until the faults end.
func isPoison(v version) bool {
	h := fnv.New64a()
	fmt.Fprint(h, v.key, v.id, v.lsn)
	return h.Sum64()%23 == 0
}

// attemptBatch fails on some changes of a batch in one of the ways open to a handler, and says which of them are done.
// In calm weather all are.
func (i *instance) attemptBatch(ctx context.Context, d *rand.Rand, b *feed.Batch) (done []feed.Change, err error) {
	if err := i.pauseOrFail(ctx, d); err != nil {
		return nil, err
	}
	if i.world.isCalm() || i.opts.OnFailure.MaxAttempts == 0 {
		return b.Changes, nil
	}
	if i.world.trouble.isDown(d) {
		return nil, errHandler
	}
	bad := map[int]error{}
	first := len(b.Changes)
	for n, c := range b.Changes {
		if i.world.trouble.isPoison(versionOf(c)) {
			bad[n], first = errHandler, min(first, n)
			if d.IntN(4) == 0 {
				bad[n] = feed.Poison(errHandler)
			}
		}
	}
	if len(bad) == 0 {
		return b.Changes, nil
	}
	// A handler may say nothing, or something senseless, or how far it came, or which items failed. None of these may
	// lose a change.
	switch d.IntN(5) {
	case 0: // no more words
		return nil, errHandler
	case 1: // nonsense
		return nil, &feed.Failure{Done: 77, Items: map[int]error{-1: errHandler}, Err: errHandler}
	case 2:
		if first == 0 {
			return nil, errHandler
		}
		return b.Changes[:first], &feed.Failure{Done: first, Err: errHandler, After: time.Second}
	}
	for n, c := range b.Changes {
		if bad[n] == nil {
			done = append(done, c)
		}
	}
	return done, &feed.Failure{Items: bad, Err: errHandler}
}

// box is where all processes park changes, as it is behind a link.
type box struct {
	mu      sync.Mutex
	letters map[string]feed.DeadLetter // by key and id
	kept    map[string]time.Time       // since when, by key and id
	listed  map[lister]time.Time       // when a process has last listed the letters of a key
}

// lister is a process that lists the letters of a key.
type lister struct {
	by  *instance
	key feed.PartitionKey
}

func newBox() *box {
	return &box{
		letters: map[string]feed.DeadLetter{}, kept: map[string]time.Time{}, listed: map[lister]time.Time{},
	}
}

// isLateFor reports whether a letter has arrived after a process has listed the letters of its key: another process had
// sent it before, while it had the lease.
func (b *box) isLateFor(by *instance, l feed.DeadLetter) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	key := l.Change.PartitionKey
	return b.kept[nameOf(key, l.ID)].After(b.listed[lister{by, key}])
}

// letters is the box as a process has it, or the operator without a link.
type letters struct {
	*link
	box *box
	g   *ledger
}

func nameOf(key feed.PartitionKey, id string) string { return string(key) + " " + id }

// Put is about the keys of its change: a letter can be kept though its sender has no answer.
func (s letters) Put(ctx context.Context, l feed.DeadLetter) error {
	_, err := carry(ctx, s.link, parcel{call: "park", of: l.Range, fate: s.fateInBox()},
		func(context.Context) (struct{}, error) {
			s.box.mu.Lock()
			name := nameOf(l.Change.PartitionKey, l.ID)
			s.box.letters[name], s.box.kept[name] = l, time.Now()
			s.box.mu.Unlock()
			// Noted on the far side, when the letter is kept: the answer may get lost, and
			// then the change is parked again.
			s.g.noteParked(s.by, l)
			return struct{}{}, nil
		})
	return err
}

func (s letters) Remove(ctx context.Context, key feed.PartitionKey, id string) error {
	_, err := carry(ctx, s.link, parcel{call: "unpark", of: feed.FullRange(), fate: s.fateInBox()},
		func(context.Context) (struct{}, error) {
			s.box.mu.Lock()
			l, there := s.box.letters[nameOf(key, id)]
			delete(s.box.letters, nameOf(key, id))
			s.box.mu.Unlock()
			if there {
				s.g.checkUnparked(s.by, l)
			}
			return struct{}{}, nil
		})
	return err
}

func (s letters) Letters(ctx context.Context, key feed.PartitionKey) iter.Seq2[feed.DeadLetter, error] {
	return func(yield func(feed.DeadLetter, error) bool) {
		found, err := carry(ctx, s.link, parcel{call: "letters", of: feed.FullRange(), fate: s.fateInBox()},
			func(context.Context) ([]feed.DeadLetter, error) {
				s.box.mu.Lock()
				s.box.listed[lister{s.by, key}] = time.Now()
				s.box.mu.Unlock()
				return s.box.lettersOf(key), nil
			})
		if err != nil {
			yield(feed.DeadLetter{}, err)
			return
		}
		for _, l := range found {
			if !yield(l, nil) {
				return
			}
		}
	}
}

// lettersOf lists the letters of a key, or all, in their order.
func (b *box) lettersOf(key feed.PartitionKey) (found []feed.DeadLetter) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, l := range b.letters {
		if key == "" || l.Change.PartitionKey == key {
			found = append(found, l)
		}
	}
	slices.SortFunc(found, func(a, o feed.DeadLetter) int {
		if byKey := strings.Compare(string(a.Change.PartitionKey), string(o.Change.PartitionKey)); byKey != 0 {
			return byKey
		}
		if a.Change.LSN != o.Change.LSN {
			return int(a.Change.LSN - o.Change.LSN)
		}
		return a.Index - o.Index
	})
	return found
}

// noteParked notes a change among the dead letters: it is over, if handlers have failed on it or if its key is held.
func (g *ledger) noteParked(by *instance, l feed.DeadLetter) {
	g.mu.Lock()
	defer g.mu.Unlock()
	v := versionOf(l.Change)
	g.tell("%s parks %s %s LSN %d: %s after %d attempts: %s", by, v.key, v.id, v.lsn, l.Disposition, l.Attempts,
		l.Cause)
	if l.Disposition == feed.DispositionHeld {
		if g.holds[v.key] == 0 {
			g.breach("%s is held without an earlier letter of %s", v.id, v.key)
		}
		// The lease has told its owner of these calls: of the first change after its position, also if this is another
		// by now.
		g.noted[v] = max(g.noted[v], l.Attempts)
	} else if !g.failed[v] && l.Disposition != feed.DispositionCrashed {
		g.breach("%s %s LSN %d is parked, and no handler has failed on it", v.key, v.id, v.lsn)
	}
	if least := g.holds[v.key]; least == 0 || v.lsn < least {
		g.holds[v.key] = v.lsn
	}
	delete(g.open, v)
}

// checkBlocked checks that a process that has noted in its lease that it holds a key hands nothing of it over, before
// somebody has asked for it. What came before the first letter may come again, after a crash. A note counts for its
// position alone: another kind of processor moves the position and knows nothing of the note.
func (g *ledger) checkBlocked(by *instance, b *feed.Batch) {
	stored := g.model.leases[b.LeaseToken]
	note := stored.Properties[notes.HeldProperty]
	if stored.by != by || b.Redriven || note == "" {
		return
	}
	var held notes.Held
	if err := json.Unmarshal([]byte(note), &held); err != nil {
		g.breach("property %s of %s: %v", notes.HeldProperty, b.LeaseToken, err)
	}
	for _, c := range b.Changes {
		if held.At == stored.Position.Token && slices.Contains(held.Keys, string(c.PartitionKey)) &&
			!g.freed[c.PartitionKey] && c.LSN > g.holds[c.PartitionKey] {
			g.breach("%s hands over LSN %d of %s, which it holds: %s", by, c.LSN, c.PartitionKey, note)
		}
	}
}

// redriveSome has some letters handled again, or keys released.
func (b *box) redriveSome(w *world, dice *rand.Rand) {
	found := b.lettersOf("")
	if len(found) == 0 || !w.isReady() {
		return
	}
	l := found[dice.IntN(len(found))]
	// Drawn here and not in the goroutine, so a seed always draws in the same order.
	release := dice.IntN(2) == 0
	w.tasks.Go(func() { _ = b.redriveOrRelease(w, l, release) })
}

// redriveOrRelease asks for a letter to be handled again, or for its key to be released.
func (b *box) redriveOrRelease(w *world, l feed.DeadLetter, release bool) error {
	ctx, cancel := context.WithTimeout(w.ctx, 3*time.Minute)
	defer cancel()
	key := l.Change.PartitionKey
	w.ledger.mu.Lock()
	// Before the request, because a process may act on it while the answer is on its
	// way.
	w.ledger.freed[key] = true
	w.ledger.mu.Unlock()
	w.ledger.note("an operator asks for %s %s, release %v", key, l.ID, release)
	var o deadletters.Outcome
	var err error
	if release {
		o, err = deadletters.Release(ctx, w.orders, w.desk, key)
	} else {
		o, err = deadletters.Redrive(ctx, w.orders, w.desk, key, l.ID)
	}
	w.ledger.note("the operator's answer for %s %s: %+v, %v", key, l.ID, o, err)
	return err
}

// has reports whether a letter is in the box.
func (b *box) has(l feed.DeadLetter) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	_, there := b.letters[nameOf(l.Change.PartitionKey, l.ID)]
	return there
}

// hasVersion reports whether the letter of a change is in the box.
func (b *box) hasVersion(v version) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, l := range b.letters {
		if versionOf(l.Change) == v {
			return true
		}
	}
	return false
}

// redriveAll has every letter handled again in calm weather, when no handler fails.
func (b *box) redriveAll(w *world) {
	for range 5 {
		for _, l := range b.lettersOf("") {
			if err := b.redriveOrRelease(w, l, l.Disposition == feed.DispositionHeld); err != nil &&
				!errors.Is(err, context.Canceled) {
				w.ledger.fail("letter %s %s: %v", l.Change.PartitionKey, l.ID, err)
				return
			}
			if b.has(l) { // its change may not be parked again when no handler fails
				w.ledger.fail("letter %s %s is left after its retry", l.Change.PartitionKey, l.ID)
			}
		}
		_ = pause.For(w.ctx, time.Second)
	}
	for _, l := range b.lettersOf("") {
		w.ledger.fail("letter %s %s (%s) is left", l.Change.PartitionKey, l.ID, l.Disposition)
	}
}
