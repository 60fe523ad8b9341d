// Package nethost plays hosts of the .NET processor, for tests of units shared with ours. A host makes a unit,
// balances, reads, checkpoints and splits as .NET's does, flaws included, because the promises must hold beside these
// flaws:
//
//   - It begins on a lease at once, and stores no position before the first batch.
//   - It keeps the ETag of the first read until a conflict; children of a split have none.
//   - It judges expiry by its own clock.
package nethost

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sort"
	"strings"
	"sync"
	"time"

	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
)

// Host is a host. Errors no host would survive go to Failed.
type Host struct {
	Orders, Leases *docstore.Container
	Prefix         string // of the ids of the unit's documents
	Name           string
	Born           feed.Start // where a lease without a position begins
	Handle         func(ctx context.Context, token string, of feed.Range, changes []feed.Change) error
	Wrote          func() // after each write of a document, if set
	Failed         func(error)

	mu    sync.Mutex
	owned map[string]bool
	work  sync.WaitGroup
	hang  context.CancelFunc // as kill -9: nothing is released
	dead  context.Context
}

var (
	errLost = errors.New("lease lost")
	errGone = errors.New("feed range gone")
)

// Expiration is how long an owner may be silent before a host takes its leases.
const Expiration = time.Minute

// Start starts the host; stop ends it in good order, kill without releasing anything.
func (h *Host) Start(ctx context.Context) (stop, kill func()) {
	h.owned = map[string]bool{}
	h.dead, h.hang = context.WithCancel(ctx)
	// Two contexts: the end of working is a stop, after which leases are still released, and the end of dead is a
	// death, after which nothing is written.
	working, cancel := context.WithCancel(ctx)
	h.bootstrap()
	h.work.Go(func() { h.balance(working) })
	stop = func() { cancel(); h.work.Wait(); h.hang() }
	return stop, func() { h.hang(); cancel(); h.work.Wait() }
}

// bootstrap makes the leases of version 0 where there is no marker. .NET's lock is left
// out: of two hosts at once, the slower one's creates conflict.
func (h *Host) bootstrap() {
	if _, err := h.Leases.Item(h.dead, feed.Key(h.Prefix+".info"), h.Prefix+".info"); err == nil {
		return
	}
	there := h.list()
	for _, partition := range h.partitions() {
		covered := slices.ContainsFunc(there, func(l *lease) bool { // as in .NET, a shared edge is enough
			return l.LeaseToken == partition.ID || l.FeedRange != nil && (l.epks().Min == partition.Range.Min ||
				l.epks().Max == partition.Range.Max)
		})
		if !covered {
			h.create(lease{LeaseToken: partition.ID}, partition.Range, nil)
		}
	}
	marker := feed.Write{Op: feed.WriteUpsert, Body: fmt.Appendf(nil, `{"id":%q}`, h.Prefix+".info")}
	if _, err := h.Leases.Commit(h.dead, feed.Key(h.Prefix+".info"), []feed.Write{marker}); err != nil {
		h.fail(err)
	}
}

// create inserts a lease; nil if another host was faster.
func (h *Host) create(l lease, r feed.Range, token *string) *lease {
	l.ID, l.Mode, l.ContinuationToken = h.Prefix+".."+l.LeaseToken, "Incremental Feed", token
	l.FeedRange = &feedRange{}
	l.FeedRange.Range.Min, l.FeedRange.Range.Max = r.Min, r.Max
	if l.Properties == nil {
		l.Properties = map[string]string{}
	}
	if h.write(feed.WriteCreate, &l) != nil {
		return nil
	}
	return &l
}

// write is conditional on the lease's ETag in memory, if any.
func (h *Host) write(op feed.WriteOp, l *lease) error {
	if err := h.dead.Err(); err != nil {
		return err
	}
	body, err := json.Marshal(l)
	if err != nil {
		return err
	}
	write := feed.Write{Op: op, ID: l.ID, Body: body}
	if l.ETag != nil && op != feed.WriteCreate {
		write.IfMatch = *l.ETag
	}
	_, err = h.Leases.Commit(h.dead, feed.Key(l.ID), []feed.Write{write})
	h.wrote()
	return err
}

// read returns a lease as stored.
func (h *Host) read(id string) (*lease, error) {
	item, err := h.Leases.Item(h.dead, feed.Key(id), id)
	if err != nil {
		return nil, err
	}
	return h.parse(item.Body), nil
}

// parse reads a lease. What it cannot read is a fault of ours: a real host would fail
// at it, too.
func (h *Host) parse(body []byte) *lease {
	var l lease
	if err := json.Unmarshal(body, &l); err != nil {
		h.fail(fmt.Errorf("a .NET host cannot read %s: %w", body, err))
	}
	return &l
}

// list returns all leases, sorted by id; none after an error, so the balancer comes
// again.
func (h *Host) list() (leases []*lease) {
	present, err := h.Leases.Snapshot(h.dead)
	if err != nil {
		return nil
	}
	defer present.Close()
	for item, err := range present.WithIDs(h.dead, h.Prefix+"..", 0) {
		if err != nil {
			return nil
		}
		leases = append(leases, h.parse(item.Body))
	}
	slices.SortFunc(leases, func(a, b *lease) int { return strings.Compare(a.ID, b.ID) })
	return leases
}

// update is .NET's updater: six tries, each on the lease brought to light by the conflict. A success keeps the old
// ETag, so the next update conflicts once more; this is .NET's way, and our stores must bear it.
func (h *Host) update(l *lease, mutate func(*lease) error) (*lease, error) {
	for range 6 {
		if err := mutate(l); err != nil {
			return l, err
		}
		now := time.Now().UTC()
		l.Timestamp = &now
		err := h.write(feed.WriteReplace, l)
		switch {
		case err == nil:
			return l, nil
		case errors.Is(err, feed.ErrNotFound):
			return l, errLost
		case !errors.Is(err, feed.ErrConflict):
			return l, err
		}
		if l, err = h.read(l.ID); err != nil {
			return &lease{}, errLost
		}
	}
	return l, errLost
}

// as makes a mutation that holds only while owner has the lease.
func as(owner string, change func(*lease)) func(*lease) error {
	return func(l *lease) error {
		if l.owner() != owner {
			return errLost
		}
		change(l)
		return nil
	}
}

// claim keeps the host from working twice on a lease chosen by two rounds.
func (h *Host) claim(token string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	mine := h.owned[token]
	h.owned[token] = true
	return !mine
}

func (h *Host) unclaim(token string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.owned, token)
}

// balance takes leases every 13 seconds, .NET's default.
func (h *Host) balance(ctx context.Context) {
	for ctx.Err() == nil {
		for _, l := range h.choose(h.list()) {
			h.take(ctx, l)
		}
		waitFor(ctx, 13*time.Second)
	}
}

// choose is the strategy of equal partitions: expired leases first, else a single lease
// of the owner with the most. One at a time is why .NET needs minutes to share many
// leases.
func (h *Host) choose(all []*lease) []*lease {
	var expired []*lease
	workers := map[string]int{h.Name: 0}
	for _, l := range all {
		if l.owner() == "" || l.touched().Add(Expiration).Before(time.Now()) {
			// Leases without an owner count as expired, and so are taken first.
			expired = append(expired, l)
		} else {
			workers[l.owner()]++
		}
	}
	target := max(1, (len(all)+len(workers)-1)/len(workers))
	need := target - workers[h.Name]
	if need <= 0 {
		return nil
	}
	if len(expired) > 0 {
		return expired[:min(need, len(expired))]
	}
	names := make([]string, 0, len(workers))
	for name := range workers {
		names = append(names, name)
	}
	sort.Slice(names, func(i, j int) bool { return workers[names[i]] > workers[names[j]] })
	spare := 0
	if need > 1 {
		spare = 1
	}
	if workers[names[0]] <= target-spare {
		return nil
	}
	i := slices.IndexFunc(all, func(l *lease) bool { return l.owner() == names[0] })
	return all[i : i+1]
}

// take acquires a lease and works on it.
func (h *Host) take(ctx context.Context, l *lease) {
	if !h.claim(l.LeaseToken) {
		return
	}
	if l.FeedRange == nil {
		for _, partition := range h.partitions() {
			if partition.ID == l.LeaseToken {
				l.FeedRange = &feedRange{}
				l.FeedRange.Range.Min, l.FeedRange.Range.Max = partition.Range.Min, partition.Range.Max
			}
		}
	}
	// Taken only from the owner seen: if another host was faster, the lease is its own.
	l, err := h.update(l, as(l.owner(), func(l *lease) { l.Owner = &h.Name }))
	if err != nil {
		h.unclaim(l.LeaseToken)
		return
	}
	h.work.Go(func() {
		defer h.unclaim(l.LeaseToken)
		h.supervise(ctx, l)
	})
}

// supervise runs reader and renewer; the end of either ends the other. Then the lease
// is released, even after an error.
func (h *Host) supervise(ctx context.Context, l *lease) {
	holding, cancel := context.WithCancel(ctx)
	var renewing sync.WaitGroup
	renewing.Go(func() { h.renew(holding, l.ID); cancel() })
	last, err := h.process(holding, l)
	cancel()
	renewing.Wait()
	if errors.Is(err, errGone) {
		h.replace(ctx, l, last)
	}
	if fresh, err := h.read(l.ID); err == nil {
		_, _ = h.update(fresh, as(h.Name, func(l *lease) { l.Owner = nil }))
	}
}

// renew reads and writes the lease every 17 seconds. Only another owner ends it; an
// error of the store is passed over, however long it lasts.
func (h *Host) renew(ctx context.Context, id string) {
	for wait := 17 * time.Second / 2; waitFor(ctx, wait); wait = 17 * time.Second {
		fresh, err := h.read(id)
		if err != nil {
			continue
		}
		if _, err := h.update(fresh, as(h.Name, func(*lease) {})); errors.Is(err, errLost) {
			return
		}
	}
}

// process is the loop of reading: a checkpoint after each batch, and none for empty
// pages.
func (h *Host) process(ctx context.Context, l *lease) (last *string, err error) {
	at := feed.Position{Start: h.Born}
	if last = l.ContinuationToken; last != nil {
		at = feed.At(*last)
	}
	for ctx.Err() == nil {
		page, err := h.Orders.Read(ctx, l.epks(), at, feed.ReadOptions{MaxItems: 5})
		if errors.Is(err, feed.ErrGone) {
			return last, errGone
		}
		if err != nil {
			return last, err
		}
		at, last = feed.At(page.Next.Token), &page.Next.Token
		if len(page.Changes) == 0 {
			waitFor(ctx, 5*time.Second)
			continue
		}
		if err := h.Handle(ctx, l.LeaseToken, l.epks(), page.Changes); err != nil {
			return last, err
		}
		if _, err := h.update(l, as(h.Name, func(l *lease) { l.ContinuationToken = &page.Next.Token })); err != nil {
			return last, err
		}
	}
	return last, ctx.Err()
}

// replace makes the leases of the parts of a vanished range, acquires them without an ETag, and deletes the parent even
// if this failed.
func (h *Host) replace(ctx context.Context, parent *lease, last *string) {
	var parts []feed.Partition
	for _, partition := range h.partitions() {
		if partition.Range.Overlaps(parent.epks()) {
			parts = append(parts, partition)
		}
	}
	if len(parts) == 1 && parent.Version == 1 {
		return // the range is in another partition now
	}
	for _, partition := range parts {
		child := lease{Version: parent.Version, LeaseToken: partition.ID, Properties: parent.Properties}
		r := partition.Range.Intersect(parent.epks())
		if parent.Version == 1 || len(parts) == 1 {
			child.Version, child.LeaseToken = 1, r.String()
		}
		if made := h.create(child, r, last); made != nil {
			h.take(ctx, made)
		}
	}
	_ = h.Leases.Delete(h.dead, feed.Key(parent.ID), parent.ID, "")
	h.wrote()
}

func (h *Host) wrote() {
	if h.Wrote != nil {
		h.Wrote()
	}
}

// partitions returns the partitions of the monitored container.
func (h *Host) partitions() []feed.Partition {
	partitions, err := h.Orders.Partitions(h.dead)
	if err != nil {
		h.fail(err)
	}
	return partitions
}

// fail reports an error, unless the host was killed: then errors are expected.
func (h *Host) fail(err error) {
	if h.dead.Err() == nil {
		h.Failed(err)
	}
}

// waitFor waits, and reports whether the whole time has passed.
func waitFor(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}
