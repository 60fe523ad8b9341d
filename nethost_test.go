package changefeed_test

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

	"github.com/millrace/changefeed"
)

// netHost is a host of the .NET processor: it makes a unit, balances, reads, checkpoints
// and splits as that one does, flaws included. It keeps documents with the members that
// .NET's class has, begins on a lease at once, stores no position before a batch, keeps
// the ETag of the first read until a conflict, has none for the children of a split, and
// looks at expiry by its own clock.
type netHost struct {
	w      *world
	name   string
	born   changefeed.Start // where a lease without a position begins
	handle func(ctx context.Context, host string, changes []changefeed.Change) error

	mu    sync.Mutex
	owned map[string]bool
	work  sync.WaitGroup
	hang  context.CancelFunc // as kill -9: nothing is released
	dead  context.Context
}

// netLease is a lease as .NET's class has it.
type netLease struct {
	ID                string            `json:"id"`
	Version           int               `json:"version"`
	ETag              *string           `json:"_etag"`
	LeaseToken        string            `json:"LeaseToken"`
	FeedRange         *netRange         `json:"FeedRange,omitempty"`
	Owner             *string           `json:"Owner"`
	ContinuationToken *string           `json:"ContinuationToken"`
	Properties        map[string]string `json:"properties"`
	Timestamp         *time.Time        `json:"timestamp"`
	TS                int64             `json:"_ts"`
	Mode              string            `json:"Mode,omitempty"`
}

type netRange struct {
	Range struct {
		Min string `json:"min"`
		Max string `json:"max"`
	}
}

var (
	errNetLost = errors.New("lease lost")
	errNetGone = errors.New("feed range gone")
)

const netExpiration = time.Minute

func (l *netLease) owner() string {
	if l.Owner == nil {
		return ""
	}
	return *l.Owner
}

func (l *netLease) epks() changefeed.Range {
	return changefeed.Range{Min: l.FeedRange.Range.Min, Max: l.FeedRange.Range.Max}
}

func (l *netLease) touched() time.Time {
	if l.Timestamp == nil {
		return time.Unix(l.TS, 0)
	}
	return *l.Timestamp
}

// startNet starts a host; stop ends it in good order, kill without a goodbye.
func (w *world) startNet(name string, born changefeed.Start, handle func(context.Context, string, []changefeed.Change) error) (stop, kill func()) {
	h := &netHost{w: w, name: name, born: born, handle: handle, owned: map[string]bool{}}
	ctx, cancel := context.WithCancel(w.t.Context())
	h.dead, h.hang = context.WithCancel(w.t.Context())
	h.bootstrap()
	h.work.Go(func() { h.balance(ctx) })
	stop = func() { cancel(); h.work.Wait(); h.hang() }
	return stop, func() { h.hang(); cancel(); h.work.Wait() }
}

func (h *netHost) prefix() string { return h.w.leases.Prefix() }

// bootstrap makes the leases of version 0 where there is no marker.
func (h *netHost) bootstrap() {
	if _, err := h.w.container.Item(h.dead, changefeed.Key(h.prefix()+".info"), h.prefix()+".info"); err == nil {
		return
	}
	for _, p := range h.w.partitions() {
		h.create(netLease{LeaseToken: p.ID}, p.Range, nil)
	}
	h.w.raw(fmt.Sprintf(`{"id":%q}`, h.prefix()+".info"))
}

// create inserts a lease; nil where another host was faster.
func (h *netHost) create(l netLease, r changefeed.Range, token *string) *netLease {
	l.ID, l.Mode, l.ContinuationToken = h.prefix()+".."+l.LeaseToken, "Incremental Feed", token
	l.FeedRange = &netRange{}
	l.FeedRange.Range.Min, l.FeedRange.Range.Max = r.Min, r.Max
	if l.Properties == nil {
		l.Properties = map[string]string{}
	}
	if h.write(changefeed.WriteCreate, &l) != nil {
		return nil
	}
	return &l
}

func (h *netHost) write(op changefeed.WriteOp, l *netLease) error {
	if err := h.dead.Err(); err != nil {
		return err
	}
	body, err := json.Marshal(l)
	if err != nil {
		return err
	}
	write := changefeed.Write{Op: op, ID: l.ID, Body: body}
	if l.ETag != nil && op != changefeed.WriteCreate {
		write.IfMatch = *l.ETag
	}
	_, err = h.w.container.Commit(h.dead, changefeed.Key(l.ID), []changefeed.Write{write})
	return err
}

func (h *netHost) read(id string) (*netLease, error) {
	it, err := h.w.container.Item(h.dead, changefeed.Key(id), id)
	if err != nil {
		return nil, err
	}
	return h.parse(it.Body), nil
}

func (h *netHost) parse(body []byte) *netLease {
	var l netLease
	if err := json.Unmarshal(body, &l); err != nil {
		h.w.t.Errorf("a .NET host cannot read %s: %v", body, err)
	}
	return &l
}

func (h *netHost) list() (leases []*netLease) {
	for it, err := range h.w.container.WithIDs(h.dead, h.prefix()+"..", 0) {
		if err != nil {
			return nil
		}
		leases = append(leases, h.parse(it.Body))
	}
	slices.SortFunc(leases, func(a, b *netLease) int { return strings.Compare(a.ID, b.ID) })
	return leases
}

// update is the updater: six tries, each on what a conflict has found. A success leaves
// the ETag that was known.
func (h *netHost) update(l *netLease, mutate func(*netLease) error) (*netLease, error) {
	for range 6 {
		if err := mutate(l); err != nil {
			return l, err
		}
		now := time.Now().UTC()
		l.Timestamp = &now
		err := h.write(changefeed.WriteReplace, l)
		switch {
		case err == nil:
			return l, nil
		case errors.Is(err, changefeed.ErrNotFound):
			return l, errNetLost
		case !errors.Is(err, changefeed.ErrConflict):
			return l, err
		}
		if l, err = h.read(l.ID); err != nil {
			return &netLease{}, errNetLost
		}
	}
	return l, errNetLost
}

// as makes a mutation that holds only while somebody owns the lease.
func as(owner string, change func(*netLease)) func(*netLease) error {
	return func(l *netLease) error {
		if l.owner() != owner {
			return errNetLost
		}
		change(l)
		return nil
	}
}

func (h *netHost) claim(token string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	mine := h.owned[token]
	h.owned[token] = true
	return !mine
}

func (h *netHost) unclaim(token string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.owned, token)
}

// balance takes leases each 13 seconds.
func (h *netHost) balance(ctx context.Context) {
	for ctx.Err() == nil {
		for _, l := range h.choose(h.list()) {
			h.take(ctx, l)
		}
		waitFor(ctx, 13*time.Second)
	}
}

// choose is the strategy of equal partitions: expired ones, else one of whoever has most.
func (h *netHost) choose(all []*netLease) []*netLease {
	var expired []*netLease
	workers := map[string]int{h.name: 0}
	for _, l := range all {
		if l.owner() == "" || l.touched().Add(netExpiration).Before(time.Now()) {
			expired = append(expired, l)
		} else {
			workers[l.owner()]++
		}
	}
	target := max(1, (len(all)+len(workers)-1)/len(workers))
	need := target - workers[h.name]
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
	i := slices.IndexFunc(all, func(l *netLease) bool { return l.owner() == names[0] })
	return all[i : i+1]
}

// take acquires a lease and works on it.
func (h *netHost) take(ctx context.Context, l *netLease) {
	if !h.claim(l.LeaseToken) {
		return
	}
	if l.FeedRange == nil {
		for _, p := range h.w.partitions() {
			if p.ID == l.LeaseToken {
				l.FeedRange = &netRange{}
				l.FeedRange.Range.Min, l.FeedRange.Range.Max = p.Range.Min, p.Range.Max
			}
		}
	}
	l, err := h.update(l, as(l.owner(), func(l *netLease) { l.Owner = &h.name }))
	if err != nil {
		h.unclaim(l.LeaseToken)
		return
	}
	h.work.Go(func() {
		defer h.unclaim(l.LeaseToken)
		h.supervise(ctx, l)
	})
}

// supervise runs reader and renewer; the end of one ends the other.
func (h *netHost) supervise(ctx context.Context, l *netLease) {
	holding, cancel := context.WithCancel(ctx)
	var renewing sync.WaitGroup
	renewing.Go(func() { h.renew(holding, l.ID); cancel() })
	last, err := h.process(holding, l)
	cancel()
	renewing.Wait()
	if errors.Is(err, errNetGone) {
		h.replace(ctx, l, last)
	}
	if fresh, err := h.read(l.ID); err == nil {
		_, _ = h.update(fresh, as(h.name, func(l *netLease) { l.Owner = nil }))
	}
}

// renew reads and writes the lease; only a lease that is somebody else's ends it.
func (h *netHost) renew(ctx context.Context, id string) {
	for wait := 17 * time.Second / 2; waitFor(ctx, wait); wait = 17 * time.Second {
		fresh, err := h.read(id)
		if err != nil {
			continue
		}
		if _, err := h.update(fresh, as(h.name, func(*netLease) {})); errors.Is(err, errNetLost) {
			return
		}
	}
}

// process is the loop of reading: a checkpoint after each batch, nothing otherwise.
func (h *netHost) process(ctx context.Context, l *netLease) (last *string, err error) {
	at := changefeed.Position{Start: h.born}
	if last = l.ContinuationToken; last != nil {
		at = changefeed.At(*last)
	}
	for ctx.Err() == nil {
		page, err := h.w.orders.Read(ctx, l.epks(), at, changefeed.ReadOptions{MaxItems: 5})
		if errors.Is(err, changefeed.ErrGone) {
			return last, errNetGone
		}
		if err != nil {
			return last, err
		}
		at, last = changefeed.At(page.Next.Token), &page.Next.Token
		if len(page.Changes) == 0 {
			waitFor(ctx, 5*time.Second)
			continue
		}
		if err := h.handle(ctx, h.name, page.Changes); err != nil {
			return last, err
		}
		if _, err := h.update(l, as(h.name, func(l *netLease) { l.ContinuationToken = &page.Next.Token })); err != nil {
			return last, err
		}
	}
	return last, ctx.Err()
}

// replace makes the leases of the parts of a range that is gone, acquires them without an
// ETag, and deletes the parent whatever has become of it.
func (h *netHost) replace(ctx context.Context, parent *netLease, last *string) {
	var parts []changefeed.Partition
	for _, p := range h.w.partitions() {
		if p.Range.Overlaps(parent.epks()) {
			parts = append(parts, p)
		}
	}
	if len(parts) == 1 && parent.Version == 1 {
		return // the range is in another partition now
	}
	for _, p := range parts {
		child := netLease{Version: parent.Version, LeaseToken: p.ID, Properties: parent.Properties}
		r := p.Range.Intersect(parent.epks())
		if parent.Version == 1 || len(parts) == 1 {
			child.Version, child.LeaseToken = 1, r.String()
		}
		if made := h.create(child, r, last); made != nil {
			h.take(ctx, made)
		}
	}
	_ = h.w.container.Delete(h.dead, changefeed.Key(parent.ID), parent.ID, "")
}

// waitFor waits, and tells whether it was for the whole time.
func waitFor(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}
