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

// layout is the shape of a container at a given moment: specification, partitions and logs. A layout never changes;
// the committer replaces the whole layout. So a reader can work with the same layout from beginning to end, and can
// notice its replacement (see move.go).
type layout struct {
	spec   ContainerSpec
	kind   epk.Kind
	paths  []pkey.Path
	unique [][]pkey.Path
	byID   bool // the container has the index by id
	parts  []*partition
	logs   map[uint32]*changelog
	former []uint32 // logs that no partition writes any more
	next   uint32   // number of the next partition, and of its log
	floor  int64    // the feed of all versions begins after this LSN
	purged int64    // see retention.go, also for the next two
	drain  int64
	marked bool          // there may be marks of dead versions
	common time.Duration // retention of the store, for containers without their own

	tallied bool // the tallies are complete; see tally.go

	etag    string // of the specification
	changed int64  // time of the last change of the specification, Unix milliseconds
}

// partition is a physical partition: a range of the key space, with a log of the same number. After a split or merge
// the partition also reads the logs of its ancestors, until their versions have been moved. Layouts share the pointer
// to a partition, so the partition's counters survive changes of the layout.
type partition struct {
	num     uint32
	rng     feed.Range
	parents []string
	newest  atomic.Int64
	docs    atomic.Int64
	retired atomic.Bool
	watch   *watch // of a split while it counts; only for the committer
	gate    gate
}

// changelog is a log. The marks low and swept save work: readers and the sweeper begin at the mark, not at the first
// LSN, which may be millions of tombstones earlier.
type changelog struct {
	rng   feed.Range   // of the partition that wrote the log
	low   atomic.Int64 // every version up to this LSN is dead
	saved atomic.Int64 // low as stored on the disk
	swept atomic.Int64 // no version up to this LSN will expire by the default ttl
}

func (p *partition) id() string { return strconv.FormatUint(uint64(p.num), 10) }

// at returns the partition of an effective partition key.
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

// partitionOfAll returns the partition that contains all of rng. If rng spans several partitions, the error is
// [feed.ErrGone]: the caller must learn of the split, because the children of a split are read, and owned,
// separately.
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

// clone returns a copy that may be changed. The copy shares partitions and logs, so their counters go on.
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

// logsOf returns the logs that contain versions of a partition: first the logs of former partitions that shared keys
// with this partition, then its own log. addPrevious relies on this order, because versions are moved from the former
// logs to the latter.
func (l *layout) logsOf(part *partition) []uint32 {
	var logs []uint32
	for _, num := range l.former {
		if l.logs[num].rng.Overlaps(part.rng) {
			logs = append(logs, num)
		}
	}
	return append(logs, part.num)
}

// findIdleLogs finds the logs that no partition writes any more.
func (l *layout) findIdleLogs() {
	l.former = nil
	for num := range l.logs {
		if !slices.ContainsFunc(l.parts, func(part *partition) bool { return part.num == num }) {
			l.former = append(l.former, num)
		}
	}
	slices.Sort(l.former)
}

// record is the stored form of a layout. The form is JSON, because a layout is written rarely, and new fields need no
// new format.
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

// encode returns the record of a container. Logs are sorted, so equal layouts have equal records.
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

// decodeLayout reads a record of encode. If an older version wrote the record, newer fields are zero; zero means that
// the container does not have the feature yet.
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
