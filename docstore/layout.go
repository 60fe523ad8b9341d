package docstore

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sort"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/internal/epk"
)

// layout is how a container is at one moment; it is never changed, only replaced, by
// the committer.
type layout struct {
	spec   ContainerSpec
	kind   epk.Kind
	paths  []keyPath
	unique [][]keyPath
	byID   bool // has the index by id
	parts  []*partition
	logs   map[uint32]*changelog
	former []uint32 // logs that no partition writes any more
	next   uint32   // number of the next partition, and of its log
	floor  int64    // all versions and deletes begins behind this LSN
	purged int64    // see retention.go, as are the next two
	drain  int64
	marked bool          // there may be marks of dead versions
	common time.Duration // retention of the store, for a container without one of its own

	etag    string // of the specification
	changed int64  // when, Unix milliseconds
}

// partition is a physical partition: a range of the key space with a log of its own,
// which has its number. After a split or merge it also reads the logs of its ancestors,
// until their versions have been moved.
type partition struct {
	num     uint32
	rng     changefeed.Range
	parents []string
	newest  atomic.Int64
	docs    atomic.Int64
	retired atomic.Bool
	watch   *watch // of a split that is counting; the committer's
	gate    gate
}

// changelog is one log.
type changelog struct {
	rng   changefeed.Range // of the partition that wrote it
	low   atomic.Int64     // nothing that lives is at or before this LSN
	saved atomic.Int64     // low as it is on disk
	swept atomic.Int64     // nothing that lives by the default ttl is at or before it
}

func (p *partition) id() string { return strconv.FormatUint(uint64(p.num), 10) }

// at is the partition that holds an effective partition key.
func (l *layout) at(key string) *partition {
	i := sort.Search(len(l.parts), func(i int) bool { return l.parts[i].rng.Min > key })
	return l.parts[max(i, 1)-1]
}

// overlapping are the partitions that share keys with r.
func (l *layout) overlapping(r changefeed.Range) []*partition {
	var found []*partition
	for _, p := range l.parts {
		if p.rng.Overlaps(r) {
			found = append(found, p)
		}
	}
	return found
}

// sole is the partition that holds all of r, or the ErrGone of a range that spans more.
func (l *layout) sole(r changefeed.Range) (*partition, error) {
	found := l.overlapping(r)
	if len(found) == 1 && found[0].rng.Contains(r) {
		return found[0], nil
	}
	if r.Empty() || len(found) == 0 || !changefeed.FullRange().Contains(r) {
		return nil, refuse("range %q holds no keys: want min below max, within -FF", r)
	}
	return nil, fmt.Errorf("%w: range %s of container %q spans %d partitions", changefeed.ErrGone, r, l.spec.ID, len(found))
}

// find is the partition with this id.
func (l *layout) find(id string) (*partition, error) {
	for _, p := range l.parts {
		if p.id() == id {
			return p, nil
		}
	}
	return nil, fmt.Errorf("partition %q of container %q: %w", id, l.spec.ID, changefeed.ErrNotFound)
}

// clone is a layout to change.
func (l *layout) clone() *layout {
	c := *l
	c.parts = slices.Clone(l.parts)
	c.logs = make(map[uint32]*changelog, len(l.logs))
	maps.Copy(c.logs, l.logs)
	return &c
}

// grow adds a partition, and its log.
func (l *layout) grow(r changefeed.Range, parents []string) *partition {
	p := &partition{num: l.next, rng: r, parents: parents}
	l.logs[l.next] = &changelog{rng: r}
	l.next++
	l.parts = append(l.parts, p)
	slices.SortFunc(l.parts, func(a, b *partition) int {
		if a.rng.Min < b.rng.Min {
			return -1
		}
		return 1
	})
	return p
}

// reading are the logs that have versions of a partition: those of former partitions
// that shared keys with it, and its own.
func (l *layout) reading(p *partition) []uint32 {
	var logs []uint32
	for _, n := range l.former {
		if l.logs[n].rng.Overlaps(p.rng) {
			logs = append(logs, n)
		}
	}
	return append(logs, p.num)
}

// settle finds the logs that no partition writes any more.
func (l *layout) settle() {
	l.former = nil
	for n := range l.logs {
		if !slices.ContainsFunc(l.parts, func(p *partition) bool { return p.num == n }) {
			l.former = append(l.former, n)
		}
	}
	slices.Sort(l.former)
}

// record is a container as it is stored.
type record struct {
	Spec       ContainerSpec
	RID        string
	Partitions []partitionRecord
	Logs       []logRecord
	Next       uint32
	Floor      int64
	Purged     int64
	Drain      int64
	Marked     bool
	Common     time.Duration `json:",omitempty"`
	ETag       string
	Changed    int64
}

type partitionRecord struct {
	Num     uint32
	Range   changefeed.Range
	Parents []string
}

type logRecord struct {
	Num   uint32
	Range changefeed.Range
}

func (l *layout) encode(rid string) ([]byte, error) {
	r := record{
		Spec: l.spec, RID: rid, Next: l.next, Floor: l.floor, Purged: l.purged, Drain: l.drain, Marked: l.marked,
		Common: l.common, ETag: l.etag, Changed: l.changed,
	}
	for _, p := range l.parts {
		r.Partitions = append(r.Partitions, partitionRecord{p.num, p.rng, p.parents})
	}
	for n, log := range l.logs {
		r.Logs = append(r.Logs, logRecord{n, log.rng})
	}
	slices.SortFunc(r.Logs, func(a, b logRecord) int { return int(a.Num) - int(b.Num) })
	return json.Marshal(r)
}

func decodeLayout(b []byte) (l *layout, rid string, err error) {
	var r record
	if err := json.Unmarshal(b, &r); err != nil {
		return nil, "", fmt.Errorf("read container: %w", err)
	}
	l, err = newLayout(r.Spec)
	if err != nil {
		return nil, "", fmt.Errorf("read container %q: %w", r.Spec.ID, err)
	}
	l.next, l.floor = r.Next, r.Floor
	l.purged, l.drain, l.marked, l.common = r.Purged, r.Drain, r.Marked, r.Common
	l.etag, l.changed = r.ETag, r.Changed
	for _, p := range r.Partitions {
		l.parts = append(l.parts, &partition{num: p.Num, rng: p.Range, parents: p.Parents})
	}
	for _, log := range r.Logs {
		l.logs[log.Num] = &changelog{rng: log.Range}
	}
	l.settle()
	return l, r.RID, nil
}
