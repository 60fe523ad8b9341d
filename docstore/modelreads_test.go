package docstore_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
)

// compareWait looks whether a reader is woken at once where there is news, and only there.
func (p *play) compareWait(rt *rapid.T, r feed.Range, from int64) {
	newest := int64(0)
	for _, d := range p.docs {
		if r.Holds(p.place(d.key)) {
			newest = max(newest, d.lsn)
		}
	}
	for _, h := range p.versions(r, 0) {
		newest = max(newest, h.lsn)
	}
	if p.woken(r, p.head) || newest > from && !p.woken(r, from) {
		rt.Fatalf("a reader of %s, whose newest LSN is %d, is woken at %d: %v, at %d: %v", r, newest, p.head,
			p.woken(r, p.head), from, p.woken(r, from))
	}
}

func (p *play) woken(r feed.Range, lsn int64) bool {
	ctx, cancel := context.WithCancel(p.t.Context())
	done := make(chan error, 1)
	go func() { done <- p.c.Wait(ctx, r, feed.At(fmt.Sprint(lsn))) }()
	synctest.Wait()
	cancel()
	err := <-done
	if err != nil && !errors.Is(err, context.Canceled) {
		p.rt.Fatal(err)
	}
	return err == nil
}

// compareItems looks at documents one by one, by their place, and by their ids.
func (p *play) compareItems(rt *rapid.T) {
	want := p.visible(p.now(), func(modelDoc) bool { return true })
	for _, d := range p.docs {
		it, err := p.c.Item(p.t.Context(), d.key, d.id)
		if p.expired(d, p.now()) {
			if !errors.Is(err, feed.ErrNotFound) {
				rt.Fatalf("item %+v has expired: %+v, %v", d, it, err)
			}
			continue
		}
		p.must(err)
		p.sameItem(rt, it, d)
	}
	p.compareCreation(rt, want)
	if p.c.HasIDIndex() {
		prefix := rapid.SampledFrom([]string{"", "id", "idid", "1"}).Draw(rt, "prefix")
		p.sameItems(rt, gather(p, p.c.WithIDs(p.t.Context(), prefix, 0)),
			inCreation(want, func(d modelDoc) bool { return strings.HasPrefix(d.id, prefix) }))
	}
	slices.SortFunc(want, func(a, b modelDoc) int {
		return cmp.Or(cmp.Compare(p.place(a.key), p.place(b.key)), cmp.Compare(a.key, b.key), cmp.Compare(a.id, b.id))
	})
	p.sameItems(rt, gather(p, p.c.Items(p.t.Context(), feed.FullRange(), "")), want)
}

// compareCreation reads parts of the partitions in the order of creation.
func (p *play) compareCreation(rt *rapid.T, want []modelDoc) {
	after := int64(rapid.IntRange(0, int(p.head+1)).Draw(rt, "created after"))<<8 - int64(rapid.IntRange(0, 1).Draw(rt,
		"before it"))
	s, err := p.c.Snapshot(p.t.Context())
	p.must(err)
	defer s.Close()
	for _, part := range p.parts() {
		for _, r := range p.cut(part.Range, rapid.IntRange(1, 2).Draw(rt, "created in")) {
			p.sameItems(rt, gather(p, s.Documents(p.t.Context(), r, after)),
				inCreation(want, func(d modelDoc) bool { return d.number() > after && r.Holds(p.place(d.key)) }))
		}
	}
}

// number is the number in the document's resource id.
func (d modelDoc) number() int64 { return d.born.lsn<<8 | int64(d.born.idx) }

// inCreation are some of the documents, in the order of their creation.
func inCreation(docs []modelDoc, shown func(modelDoc) bool) []modelDoc {
	docs = slices.DeleteFunc(slices.Clone(docs), func(d modelDoc) bool { return !shown(d) })
	slices.SortFunc(docs, func(a, b modelDoc) int { return a.born.compare(b.born) })
	return docs
}

func gather(p *play, items func(func(docstore.Item, error) bool)) (all []docstore.Item) {
	for it, err := range items {
		p.must(err)
		all = append(all, it)
	}
	return all
}

func (p *play) sameItems(rt *rapid.T, got []docstore.Item, want []modelDoc) {
	if len(got) != len(want) {
		rt.Fatalf("%d items, want %d: %+v, want %+v", len(got), len(want), got, want)
	}
	for i, d := range want {
		p.sameItem(rt, got[i], d)
	}
}

func (p *play) sameItem(rt *rapid.T, it docstore.Item, d modelDoc) {
	if (modelID{it.Key, it.ID}) != d.modelID || it.ETag != d.etag || it.LSN != d.lsn ||
		it.Number != d.number() || it.Time.UnixMilli() != d.at {
		rt.Fatalf("item %+v, want %+v", it, d)
	}
	p.sameBody(rt, it.Body, d)
}

// compareKey reads one logical partition, or all whose keys begin so.
func (p *play) compareKey(rt *rapid.T, from int64) {
	value := map[string]any{"id": "i"}
	p.setKey(value, rapid.IntRange(0, 7).Draw(rt, "key"))
	key := p.keyOf(value)
	holds := func(k feed.PartitionKey) bool { return k == key }
	if len(p.key) > 1 && rapid.Bool().Draw(rt, "beginning of a key") {
		key = feed.Key(value["pk"])
		begin := strings.TrimSuffix(string(key), "]") + ","
		holds = func(k feed.PartitionKey) bool { return strings.HasPrefix(string(k), begin) }
	}
	want := p.visible(p.now(), func(d modelDoc) bool { return d.lsn > from && holds(d.key) })
	after := from << 8
	p.sameItems(rt, gather(p, p.c.Logical(p.t.Context(), key, after)),
		inCreation(p.visible(p.now(), func(d modelDoc) bool { return holds(d.key) }),
			func(d modelDoc) bool { return d.number() > after }))
	where, err := p.c.LogicalPartition(key)
	p.must(err)
	var got []feed.Change
	for _, part := range p.parts() {
		if part.Range.Overlaps(where.Range()) {
			got = append(got, p.pages(rt, part.Range, feed.At(fmt.Sprint(from)),
				feed.ReadOptions{Key: key, MaxItems: 2})...)
		}
	}
	slices.SortStableFunc(got, func(a, b feed.Change) int { return cmp.Compare(a.LSN, b.LSN) })
	if len(got) != len(want) {
		rt.Fatalf("key %s from %d: %s, want %+v", key, from, brief(got), want)
	}
	for i, d := range want {
		if got[i].ID != d.id || got[i].PartitionKey != d.key || got[i].LSN != d.lsn {
			rt.Fatalf("key %s from %d, change %d is %+v, want %+v", key, from, i, got[i], d)
		}
	}
}

// compareCounts looks at the figures of each partition, which include what has expired
// and is not removed yet.
func (p *play) compareCounts(rt *rapid.T) {
	stats := p.db.Stats().Containers[0]
	if p.c.Count() != int64(len(p.docs)) || stats.Documents != p.c.Count() || stats.Head != p.head {
		rt.Fatalf("%d documents, head %d: want %d, %d", p.c.Count(), stats.Head, len(p.docs), p.head)
	}
	for _, part := range stats.Partitions {
		n := int64(0)
		for _, d := range p.docs {
			if part.Range.Holds(p.place(d.key)) {
				n++
			}
		}
		if part.Documents != n {
			rt.Fatalf("partition %+v: want %d documents", part, n)
		}
	}
}

// comparePending counts both feeds of the container and of one of its partitions.
func (p *play) comparePending(rt *rapid.T, pos feed.Position, from, since int64) {
	part := rapid.SampledFrom(p.parts()).Draw(rt, "partition")
	for _, r := range append(p.cut(part.Range, 2), part.Range, feed.FullRange()) {
		p.comparePendingOf(rt, r, pos, from, since)
	}
}

func (p *play) comparePendingOf(rt *rapid.T, r feed.Range, pos feed.Position, from, since int64) {
	var want feed.Backlog
	add := func(ms int64) {
		want.Items++
		if t := time.UnixMilli(ms).UTC(); want.Oldest.IsZero() || t.Before(want.Oldest) {
			want.Oldest = t
		}
	}
	for _, d := range p.visible(p.now(), func(d modelDoc) bool {
		return d.lsn > from && d.at >= since && r.Holds(p.place(d.key))
	}) {
		add(d.at)
	}
	if got, err := p.c.Pending(p.t.Context(), r, pos, feed.ReadOptions{}); err != nil || got != want {
		rt.Fatalf("pending in %s from %s: %+v, %v, want %+v", r, pos, got, err, want)
	}
	if p.retention == 0 || from < p.oldest() && from >= p.floor {
		return
	}
	want = feed.Backlog{}
	for _, h := range p.versions(r, from) {
		add(h.at)
	}
	got, err := p.c.Pending(p.t.Context(), r, feed.At(fmt.Sprint(from)),
		feed.ReadOptions{Mode: feed.AllVersionsAndDeletes})
	if from < p.floor {
		if !errors.Is(err, feed.ErrTooOld) {
			rt.Fatalf("pending versions from %d, which is before %d: %+v, %v", from, p.floor, got, err)
		}
		return
	}
	if err != nil || got != want {
		rt.Fatalf("pending versions in %s from %d: %+v, %v, want %+v", r, from, got, err, want)
	}
}

// brief is a list of changes without their bodies.
func brief(changes []feed.Change) string {
	var b strings.Builder
	for _, ch := range changes {
		fmt.Fprintf(&b, "%s %s%s at %d; ", ch.Op, ch.PartitionKey, ch.ID, ch.LSN)
	}
	return b.String()
}
