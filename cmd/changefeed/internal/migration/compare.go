package migration

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/cmd/changefeed/internal/place"
	"github.com/millrace/changefeed/cmd/changefeed/internal/report"
	"github.com/millrace/changefeed/cmd/changefeed/internal/terminal"
	"github.com/millrace/changefeed/cmd/changefeed/internal/usage"
	"github.com/millrace/changefeed/feed"
)

// How two containers are compared
//
// The target is read first, then the source. A record of each document is written into one of many files, chosen by the
// place in the target: the place, a print of the content, and the item of the source. So the records of a place are in
// one file, and a file fits into memory, however many documents there are. Records that differ are candidates: somebody
// may have written meanwhile. Each is looked at again, until both sides agree or have agreed a moment before, or until
// the source has not changed for the patience and the target still differs.

// A Compare compares a container with a copy.
type Compare struct {
	Pair

	Most     int           // differences that are listed
	Patience time.Duration // for which an item must differ, unchanged
	Repair   bool          // copy differing items anew

	Report  *report.Report
	Retries *place.Patience
}

// check refuses invalid values of flags.
func (c *Compare) check() error {
	switch {
	case c.Most < 0:
		return usage.Flag("most", fmt.Sprint(c.Most), "0 or more")
	case c.Patience < 0:
		return usage.Flag("settle", terminal.Exact(c.Patience), "0s or more")
	}
	return cmp.Or(c.Retries.Check(), c.Pair.check())
}

// comparison is a comparison at work.
type comparison struct {
	*Compare
	*copier

	result Comparison
	parts  []feed.Range // of the target
	read   atomic.Int64
	total  int64
	hides  bool // the transform has failed on an item, when owners were looked for
}

// Run compares, and reports.
func (c *Compare) Run(ctx context.Context) (err error) {
	if err := c.check(); err != nil {
		return err
	}
	opened, err := c.open(ctx, c.Retries, nil)
	if err != nil {
		return err
	}
	defer func() { err = cmp.Or(err, opened.close()) }()
	m, err := c.mapper(opened)
	if err != nil {
		return err
	}
	w := &comparison{Compare: c, copier: newCopier(opened, m, c.Writers)}
	w.result.Source, w.result.Target = opened.source.Address.String(), opened.target.Address.String()
	w.result.Ranges, w.result.Differences = []RangeSums{}, []Difference{}
	if err := w.run(ctx); err != nil {
		return err
	}
	w.result.Repaired = w.written.Load() + w.deleted.Load()
	if err := c.Report.Object(&w.result, w.result.write); err != nil {
		return err
	}
	if n := w.result.differing(); n > 0 {
		return fmt.Errorf("%s of the target %s", terminal.Count(n, "document"), differs(n))
	}
	return nil
}

// differs is the verb for a number of documents.
func differs(n int64) string {
	if n == 1 {
		return "differs"
	}
	return "differ"
}

// run reads both sides, and compares their records.
func (w *comparison) run(ctx context.Context) error {
	parts, err := w.target.sources.Partitions(ctx)
	if err != nil {
		return err
	}
	for _, p := range parts {
		w.parts = append(w.parts, p.Range)
		w.result.Ranges = append(w.result.Ranges, RangeSums{Range: p.Range.String()})
	}
	files, err := newRecords()
	if err != nil {
		return err
	}
	defer files.remove()
	w.total = w.countBoth(ctx)
	state := func() report.State { return report.State{Done: w.read.Load(), Total: w.total} }
	return w.Report.During("compare", report.Documents, state, func() error {
		if err := w.readTarget(ctx, files); err != nil {
			return err
		}
		if err := w.readSource(ctx, files); err != nil {
			return err
		}
		return w.compareFiles(ctx, files)
	})
}

// countBoth counts the documents of both sides; 0 if they cannot be counted.
func (w *comparison) countBoth(ctx context.Context) (n int64) {
	for _, s := range []*side{w.source, w.target} {
		counter, ok := s.sources.(feed.Counter)
		if !ok {
			return 0
		}
		start := feed.Position{Start: feed.FromBeginning()}
		all, err := counter.Pending(ctx, feed.FullRange(), start, feed.ReadOptions{})
		if err != nil {
			return 0
		}
		n += all.Items
	}
	return n
}

// pages calls f for each page of a side.
func (w *comparison) pages(ctx context.Context, s *side, f func(changes []feed.Change) error) error {
	start := feed.Position{Start: feed.FromBeginning()}
	for page, err := range changefeed.Pull(ctx, s.sources, feed.FullRange(), start, changefeed.PullOptions{}) {
		if err != nil {
			return err
		}
		if err := f(page.Changes); err != nil {
			return err
		}
		w.read.Add(int64(len(page.Changes)))
	}
	return context.Cause(ctx)
}

// readTarget writes a record of each document of the target.
func (w *comparison) readTarget(ctx context.Context, files *records) error {
	return w.pages(ctx, w.target, func(changes []feed.Change) error {
		for i := range changes {
			ch := &changes[i]
			d := document{ch.Body, ch.ETag, ch.Time}
			if err := files.add(w.recordIn(d, ch.PartitionKey, ch.ID)); err != nil {
				return err
			}
		}
		return nil
	})
}

// recordIn returns the record of a document of the target. A ttl counts by the time of its end, but a ttl without an
// end, such as -1, is content.
func (w *comparison) recordIn(d document, key feed.PartitionKey, id string) record {
	r := record{Key: key, ID: id}
	if w.mapper.remaining {
		r.Expires = unixOf(lifeOf(d))
	}
	r.Print = fingerprint(d.body, r.Expires != 0)
	return r
}

// unixOf returns a time in seconds; 0 if there is none.
func unixOf(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.Unix()
}

// readSource writes a record of each document that an item of the source becomes.
func (w *comparison) readSource(ctx context.Context, files *records) error {
	return w.pages(ctx, w.source, func(changes []feed.Change) error {
		versions := make([]document, len(changes))
		for i, ch := range changes {
			versions[i] = document{ch.Body, ch.ETag, ch.Time}
		}
		maps, err := w.mapper.apply(ctx, versions, false)
		if err != nil {
			return err
		}
		for i, m := range maps {
			if m.err != nil {
				w.note(Difference{
					What: uncopied, Item: changes[i].ID, ItemKey: string(changes[i].PartitionKey), Why: m.err.Error(),
				})
			}
			for _, d := range m.documents {
				if err := files.add(w.recordOf(d, changes[i].PartitionKey, changes[i].ID, changes[i].LSN)); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

// recordOf returns the record of a document that an item becomes.
func (w *comparison) recordOf(d wanted, key feed.PartitionKey, id string, lsn int64) record {
	return record{
		Key: d.key, ID: d.id, Print: fingerprint(d.body, !d.expires.IsZero()), Expires: unixOf(d.expires),
		IsSource: true, ItemKey: key, Item: id, LSN: lsn,
	}
}

// maxCandidates is how many places are looked at again together: looking takes as long as the patience, and memory.
const maxCandidates = 20_000

// compareFiles compares the records of each file.
func (w *comparison) compareFiles(ctx context.Context, files *records) error {
	candidates := map[spot]*both{}
	for i := range files.buckets {
		places := map[spot]*both{}
		if err := files.each(i, func(r record) { addRecord(places, r) }); err != nil {
			return err
		}
		for at, b := range places {
			if !b.isSame() {
				candidates[at] = b
			} else if err := w.sum(ctx, at, b); err != nil {
				return err
			}
		}
		if len(candidates) >= maxCandidates || i == len(files.buckets)-1 {
			if err := w.settleAll(ctx, candidates); err != nil {
				return err
			}
			clear(candidates)
		}
	}
	w.finish()
	return nil
}

// settleAll looks at places again, and adds them to the sums.
func (w *comparison) settleAll(ctx context.Context, places map[spot]*both) error {
	if err := w.settle(ctx, places); err != nil {
		return err
	}
	for at, b := range places {
		if err := w.sum(ctx, at, b); err != nil {
			return err
		}
	}
	return nil
}

// finish completes the result.
func (w *comparison) finish() {
	for i := range w.result.Ranges {
		r := &w.result.Ranges[i]
		r.SourceSum, r.TargetSum = fmt.Sprintf("%016x", r.source), fmt.Sprintf("%016x", r.target)
		r.Same = r.source == r.target && r.SourceCount == r.TargetCount
		w.result.SourceCount += r.SourceCount
		w.result.TargetCount += r.TargetCount
	}
	slices.SortFunc(w.result.Differences, func(a, b Difference) int {
		return cmp.Or(strings.Compare(a.What, b.What), strings.Compare(a.Key, b.Key), strings.Compare(a.ID, b.ID))
	})
}

// both are the records of a place.
type both struct {
	target *record
	source []record // of several items in a conflict
}

// addRecord adds a record to its place. A later record of an item replaces an earlier record.
func addRecord(places map[spot]*both, r record) {
	at := spot{r.Key, r.ID}
	b := places[at]
	if b == nil {
		b = &both{}
		places[at] = b
	}
	if !r.IsSource {
		b.target = &r
		return
	}
	i := slices.IndexFunc(b.source, func(s record) bool { return s.ItemKey == r.ItemKey && s.Item == r.Item })
	if i >= 0 {
		b.source[i] = r
	} else {
		b.source = append(b.source, r)
	}
}

// isSame reports whether both sides have the same document.
func (b *both) isSame() bool {
	if b.target == nil || len(b.source) != 1 {
		return b.target == nil && len(b.source) == 0
	}
	s, t := b.source[0], *b.target
	hasLife := s.Expires != 0 || t.Expires != 0
	return s.Print == t.Print && (!hasLife || sameLife(time.Unix(s.Expires, 0), time.Unix(t.Expires, 0)))
}

// sum adds a place to the sums of the range. A document counts with its place and content.
func (w *comparison) sum(ctx context.Context, at spot, b *both) error {
	epk, err := w.target.Concrete().(feed.Locator).Locate(ctx, at.key)
	if err != nil {
		return err
	}
	i := max(0, slices.IndexFunc(w.parts, func(r feed.Range) bool { return r.Holds(epk) }))
	r := &w.result.Ranges[i]
	place := placeNumber(at)
	if b.target != nil {
		r.TargetCount++
		r.target += place ^ b.target.Print.number()
	}
	for _, s := range b.source {
		r.SourceCount++
		r.source += place ^ s.Print.number()
	}
	return nil
}
