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

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/cosmosdb/epk"
	"github.com/millrace/changefeed/internal/cosmosdb/pkey"
)

// layout is the shape of a container at one moment: specification, partitions and logs.
// A layout is never changed but replaced as a whole, by the committer, so that a reader
// can work with the layout of its beginning, and can notice that
// another has come (see move.go).
type layout struct {
	spec   ContainerSpec
	kind   epk.Kind
	paths  []pkey.Path
	unique [][]pkey.Path
	byID   bool // has the index by id
	parts  []*partition
	logs   map[uint32]*changelog
	former []uint32 // logs that no partition writes any more
	next   uint32   // number of the next partition, and of its log
	floor  int64    // the feed of all versions begins after this LSN
	purged int64    // see retention.go, as are the next two
	drain  int64
	marked bool          // there may be marks of dead versions
	common time.Duration // retention of the store, which counts where the container has none

	tallied bool // the tallies are there; see tally.go

	etag    string // of the specification
	changed int64  // when, Unix milliseconds
}

// partition is a physical partition: a range of the key space, with a log of the same
// number. After a split or merge the partition also reads the logs of its ancestors,
// until their versions have been moved. Its counters live on through changes of the
// layout, because layouts share the pointer.
type partition struct {
	num     uint32
	rng     feed.Range
	parents []string
	newest  atomic.Int64
	docs    atomic.Int64
	retired atomic.Bool
	watch   *watch // of a split while counting; the committer's
	gate    gate
}

// changelog is one log. The marks only save work: readers and the sweeper begin at them
// and not at the first LSN, which may be millions of tombstones away.
type changelog struct {
	rng   feed.Range   // of the partition that wrote it
	low   atomic.Int64 // every version up to this LSN is dead
	saved atomic.Int64 // low as it is on disk
	swept atomic.Int64 // no version up to this LSN will expire by the default ttl
}

func (p *partition) id() string { return strconv.FormatUint(uint64(p.num), 10) }

// at returns the partition that holds an effective partition key.
func (l *layout) at(key string) *partition {
	i := sort.Search(len(l.parts), func(i int) bool { return l.parts[i].rng.Min > key })
	return l.parts[max(i, 1)-1]
}

// overlapping returns the partitions that share keys with rng.
func (l *layout) overlapping(rng feed.Range) []*partition {
	var found []*partition
	for _, part := range l.parts {
		if part.rng.Overlaps(rng) {
			found = append(found, part)
		}
	}
	return found
}

// partitionOfAll returns the partition that holds all of rng. A range across several partitions is
// [feed.ErrGone]: the caller must learn of the split, since the children of a
// split are read, and owned, separately.
func (l *layout) partitionOfAll(rng feed.Range) (*partition, error) {
	found := l.overlapping(rng)
	if len(found) == 1 && found[0].rng.Contains(rng) {
		return found[0], nil
	}
	if rng.Empty() || len(found) == 0 || !feed.FullRange().Contains(rng) {
		return nil, refuse("range %q holds no keys: want min below max, within -FF", rng)
	}
	return nil, fmt.Errorf("%w: range %s of container %q spans %d partitions", feed.ErrGone, rng, l.spec.ID, len(found))
}

// find returns the partition with this id.
func (l *layout) find(id string) (*partition, error) {
	for _, part := range l.parts {
		if part.id() == id {
			return part, nil
		}
	}
	return nil, fmt.Errorf("partition %q of container %q: %w", id, l.spec.ID, feed.ErrNotFound)
}

// clone returns a copy to change. Partitions and logs are shared: their counters go on.
func (l *layout) clone() *layout {
	c := *l
	c.parts = slices.Clone(l.parts)
	c.logs = make(map[uint32]*changelog, len(l.logs))
	maps.Copy(c.logs, l.logs)
	return &c
}

// addPartition adds a partition and its log.
func (l *layout) addPartition(rng feed.Range, parents []string) *partition {
	part := &partition{num: l.next, rng: rng, parents: parents}
	l.logs[l.next] = &changelog{rng: rng}
	l.next++
	l.parts = append(l.parts, part)
	slices.SortFunc(l.parts, func(a, b *partition) int {
		if a.rng.Min < b.rng.Min {
			return -1
		}
		return 1
	})
	return part
}

// logsOf returns the logs that have versions of a partition: those of former
// partitions that shared keys with it, then its own. The order matters to addPrevious,
// which follows versions that are being moved from the former to the latter.
func (l *layout) logsOf(part *partition) []uint32 {
	var logs []uint32
	for _, num := range l.former {
		if l.logs[num].rng.Overlaps(part.rng) {
			logs = append(logs, num)
		}
	}
	return append(logs, part.num)
}

// findIdleLogs recomputes which logs no partition writes any more.
func (l *layout) findIdleLogs() {
	l.former = nil
	for num := range l.logs {
		if !slices.ContainsFunc(l.parts, func(part *partition) bool { return part.num == num }) {
			l.former = append(l.former, num)
		}
	}
	slices.Sort(l.former)
}

// record is the stored form of a layout, as JSON: it is written rarely, and fields were
// added over time without a new format.
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
	Tallied    bool
	ETag       string
	Changed    int64
}

type partitionRecord struct {
	Num     uint32
	Range   feed.Range
	Parents []string
}

type logRecord struct {
	Num   uint32
	Range feed.Range
}

// encode makes the record of a container. Logs are sorted, so that equal layouts have equal
// records.
func (l *layout) encode(rid string) ([]byte, error) {
	r := record{
		Spec: l.spec, RID: rid, Next: l.next, Floor: l.floor, Purged: l.purged, Drain: l.drain, Marked: l.marked,
		Common: l.common, Tallied: l.tallied, ETag: l.etag, Changed: l.changed,
	}
	for _, part := range l.parts {
		r.Partitions = append(r.Partitions, partitionRecord{part.num, part.rng, part.parents})
	}
	for num, log := range l.logs {
		r.Logs = append(r.Logs, logRecord{num, log.rng})
	}
	slices.SortFunc(r.Logs, func(a, b logRecord) int { return int(a.Num) - int(b.Num) })
	return json.Marshal(r)
}

// decodeLayout reads a record that encode made. Fields that older versions did not write are
// zero, which means that their subject is not there yet.
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
	l.tallied = r.Tallied
	l.etag, l.changed = r.ETag, r.Changed
	for _, p := range r.Partitions {
		l.parts = append(l.parts, &partition{num: p.Num, rng: p.Range, parents: p.Parents})
	}
	for _, log := range r.Logs {
		l.logs[log.Num] = &changelog{rng: log.Range}
	}
	l.findIdleLogs()
	return l, r.RID, nil
}
