package cosmos

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/millrace/changefeed/feed"
)

// Physical partitions change rarely, but every read of the feed uses them. So the client keeps the last list until the
// service answers that the list is out of date.

// rangeSet is the physical partitions at one time.
type rangeSet []feed.Partition

// rangeCache keeps the last set, because every read needs the id of a partition and partitions rarely change. The
// service says when an id is out of date.
type rangeCache struct {
	gate chan struct{} // protects the read of the ranges
	last atomic.Pointer[rangeSet]
}

func newRangeCache() *rangeCache { return &rangeCache{gate: make(chan struct{}, 1)} }

// holder returns the partition that contains all of a range.
func (s rangeSet) holder(r feed.Range) (feed.Partition, bool) {
	i := slices.IndexFunc(s, func(partition feed.Partition) bool { return partition.Range.Contains(r) })
	if i < 0 {
		return feed.Partition{}, false
	}
	return s[i], true
}

// Partitions implements [feed.Source]. Each call asks the service.
func (c *Container) Partitions(ctx context.Context) ([]feed.Partition, error) {
	set, err := c.partitions(ctx, func(*rangeSet) bool { return false })
	if err != nil {
		return nil, fmt.Errorf("list partitions of %q: %w", c.id, err)
	}
	return slices.Clone(*set), nil
}

// partitions returns the last set if willDo accepts it, and otherwise reads the present set. If several callers need a
// new set, a single caller reads it for all.
func (c *Container) partitions(ctx context.Context, willDo func(*rangeSet) bool) (*rangeSet, error) {
	if last := c.ranges.last.Load(); last != nil && willDo(last) {
		return last, nil
	}
	select {
	case c.ranges.gate <- struct{}{}:
		defer func() { <-c.ranges.gate }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	if last := c.ranges.last.Load(); last != nil && willDo(last) {
		return last, nil // another caller has read it
	}
	set, err := c.readRanges(ctx)
	if err != nil {
		return nil, err
	}
	c.ranges.last.Store(&set)
	return &set, nil
}

// rangeInfo is a partition key range in the service's words.
type rangeInfo struct {
	ID           string
	MinInclusive string
	MaxExclusive string
	Parents      []string
}

// maxRangePages ends a list whose pages never end.
const maxRangePages = 100

// readRanges reads the list of ranges page by page until the service answers 304: the list is itself a change feed, and
// 304 is its end.
func (c *Container) readRanges(ctx context.Context) (rangeSet, error) {
	all := map[string]rangeInfo{}
	etag := ""
	for range maxRangePages {
		r := request{method: http.MethodGet, at: c.resourceAt("pkranges"), action: actionMetadata, header: fields{
			{headerAIM, feedLatest}, {headerMaxItems, "-1"},
		}}
		if etag != "" {
			r.header.set(headerIfNoneMatch, etag)
		}
		a, err := c.do(ctx, r)
		if err != nil {
			return nil, err
		}
		next := a.header.Get(headerETag)
		if a.is(http.StatusNotModified) || next == "" && etag != "" {
			return c.assembleRanges(all)
		}
		var page struct {
			RID                string `json:"_rid"` // of the container
			PartitionKeyRanges []rangeInfo
		}
		if err := json.Unmarshal(a.body, &page); err != nil {
			return nil, fmt.Errorf("%s: parse ranges: %w", r, err)
		}
		// The request uses the name, which may now belong to another container.
		if page.RID != "" && page.RID != c.rid {
			return nil, fmt.Errorf("%s: %w; %s", r, ErrMadeAnew, adviceAnew)
		}
		for _, info := range page.PartitionKeyRanges {
			all[info.ID] = info
		}
		if etag = next; etag == "" {
			return c.assembleRanges(all)
		}
	}
	return nil, fmt.Errorf("the list of ranges has more than %d pages", maxRangePages)
}

// assembleRanges removes the ranges replaced by others. If the rest does not cover the key space, the list
// changed during the read.
func (c *Container) assembleRanges(all map[string]rangeInfo) (rangeSet, error) {
	gone := map[string]bool{}
	for _, info := range all {
		for _, parent := range info.Parents {
			gone[parent] = true
		}
	}
	var set rangeSet
	for _, id := range slices.Sorted(maps.Keys(all)) {
		if info := all[id]; !gone[id] {
			r := feed.Range{Min: strings.ToUpper(info.MinInclusive), Max: strings.ToUpper(info.MaxExclusive)}
			set = append(set, feed.Partition{ID: id, Range: r, Parents: info.Parents})
		}
	}
	byRange(set)
	if !tiles(set) {
		return nil, fmt.Errorf("ranges %v do not cover the key space", set)
	}
	return set, nil
}
