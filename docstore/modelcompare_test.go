package docstore_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"pgregory.net/rapid"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/cosmosdb/epk"
)

func drawUnique(rt *rapid.T) any {
	return rapid.SampledFrom([]any{
		"a", "b", "c", 1, 1.5, nil, true,
		[]any{1},
		map[string]any{"x": 1, "y": "z"},
	}).Draw(rt, "unique")
}

// drawValue adds members to a document.
func drawValue(rt *rapid.T, value map[string]any) {
	value["v"] = rapid.IntRange(0, 1000).Draw(rt, "v")
	if rapid.Bool().Draw(rt, "has u") {
		value["u"] = drawUnique(rt)
	}
	switch rapid.IntRange(0, 2).Draw(rt, "n") {
	case 1:
		value["n"] = map[string]any{"x": drawUnique(rt)}
	case 2:
		value["n"] = drawUnique(rt)
	}
	if ttl := rapid.SampledFrom([]int{0, 0, -1, 1, 30, 100}).Draw(rt, "own ttl"); ttl != 0 {
		value["ttl"] = ttl
	}
}

func drawPatch(rt *rapid.T) []feed.PatchOp {
	ops := make([]feed.PatchOp, rapid.IntRange(1, 2).Draw(rt, "patches"))
	for i := range ops {
		path := rapid.SampledFrom([]string{"/v", "/u", "/n", "/n/x", "/ttl"}).Draw(rt, "path")
		value := encode(drawUnique(rt))
		if path == "/ttl" {
			value = encode(rapid.SampledFrom([]int{0, -1, 10, 50}).Draw(rt, "own ttl"))
		}
		ops[i] = feed.PatchOp{Op: "set", Path: path, Value: value}
		if rapid.IntRange(0, 3).Draw(rt, "remove") == 0 {
			ops[i] = feed.PatchOp{Op: "remove", Path: path}
		}
	}
	return ops
}

func encode(v any) []byte {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return text
}

// judge compares what became of a batch.
func (p *play) judge(rt *rapid.T, d draft, results []feed.Result, err error) {
	a, failed, want := p.try(d.key, d.writes, p.now())
	if want != nil {
		var we *feed.WriteError
		if !errors.Is(err, want) || !errors.As(err, &we) || we.Index != failed {
			rt.Fatalf("batch of %s: %s: %v, want write %d refused: %v", d.key, encode(d.writes), err, failed, want)
		}
		return
	}
	if err != nil || len(results) != len(d.writes) {
		rt.Fatalf("batch of %s: %s: %d results, %v", d.key, encode(d.writes), len(results), err)
	}
	lsn := p.newLSN(rt, d, a, results)
	for i, w := range a.results {
		got := results[i]
		if w.lsn == 0 && d.writes[i].Op != feed.WriteDelete { // of this batch
			w.lsn, w.at, w.etag = lsn, p.now(), results[w.idx].ETag
			p.newTag(rt, got.ETag, d.writes[i].Op)
		}
		if got.Created != w.created || w.value != nil && (got.ETag != w.etag || got.LSN != w.lsn) {
			rt.Fatalf("write %d of %s: %s gave %+v, want %+v", i, d.key, encode(d.writes), got, w)
		}
		p.sameBody(rt, got.Body, w.modelDoc)
	}
	if len(a.changes) == 0 {
		return
	}
	before := p.head
	for _, ch := range a.changes {
		if old := p.docs[ch.modelID]; old.etag != "" {
			p.older[ch.modelID] = old.etag
		}
	}
	p.adopt(a, results, lsn)
	p.nameExpiries(before)
}

// newLSN is the one LSN of a batch, which is one more than the head unless expired
// documents had to go before.
func (p *play) newLSN(rt *rapid.T, d draft, a *attempt, results []feed.Result) (lsn int64) {
	for i, r := range results {
		if d.writes[i].Op == feed.WriteRead {
			continue
		}
		if lsn == 0 {
			lsn = r.LSN
		}
		if r.LSN != lsn || lsn != p.head+1+int64(len(a.removed)) {
			rt.Fatalf("write %d has LSN %d, after head %d and %d expiries", i, r.LSN, p.head, len(a.removed))
		}
	}
	return lsn
}

func (p *play) newTag(rt *rapid.T, tag string, op feed.WriteOp) {
	if op == feed.WriteRead {
		return
	}
	if tag == "" || p.tags[tag] {
		rt.Fatalf("%v gave the ETag %s again", op, tag)
	}
	p.tags[tag] = true
}

// sameBody compares a document, with its system properties.
func (p *play) sameBody(rt *rapid.T, body []byte, want modelDoc) {
	if want.value == nil || body == nil {
		if want.value != nil || body != nil {
			rt.Fatalf("body is %s, want %v", body, want.value)
		}
		return
	}
	got := decode(body)
	rid, _ := got["_rid"].(string)
	self, _ := got["_self"].(string)
	system := got["_etag"] == want.etag && got["_ts"] == float64(want.at/1000) && rid != "" &&
		strings.HasSuffix(self, "/docs/"+rid+"/")
	for _, name := range []string{"_rid", "_self", "_etag", "_ts", "_attachments"} {
		delete(got, name)
	}
	if value := decode(encode(want.value)); !system || !reflect.DeepEqual(got, value) {
		rt.Fatalf("body is %s, want %+v", body, want)
	}
}

// nameExpiries learns from the feed the LSNs of the deletes by time to live.
func (p *play) nameExpiries(before int64) {
	if p.retention == 0 {
		return
	}
	if before < p.floor {
		return
	}
	from := before
	for !p.byHand && errors.Is(p.readError(from), feed.ErrTooOld) {
		from++ // the sweeper has forgotten some already
	}
	for _, part := range p.parts() {
		got, _ := drain(p.t, p.c, part.Range, feed.At(fmt.Sprint(from)),
			feed.ReadOptions{Mode: feed.AllVersionsAndDeletes})
		for _, ch := range got {
			for i := range p.history {
				h := &p.history[i]
				if h.lsn == 0 && ch.Expired && h.modelID == (modelID{ch.PartitionKey, ch.ID}) &&
					ch.PreviousLSN == h.prev.lsn {
					h.lsn, h.at = ch.LSN, ch.Time.UnixMilli()
				}
			}
		}
	}
	if from > before {
		p.lifted = max(p.lifted, from)
		p.history = slices.DeleteFunc(p.history, func(h modelVersion) bool { return h.lsn == 0 })
	}
	slices.SortStableFunc(p.history, func(a, b modelVersion) int { return a.compare(b.modelPlace) })
	if len(p.history) > 0 && p.history[0].lsn == 0 {
		p.rt.Fatalf("no delete in the feed for %+v", p.history[0])
	}
}

// readError is that of a read of all versions.
func (p *play) readError(from int64) error {
	_, err := p.c.Read(p.t.Context(), p.parts()[0].Range, feed.At(fmt.Sprint(from)),
		feed.ReadOptions{Mode: feed.AllVersionsAndDeletes})
	return err
}

// look compares now and then.
func (p *play) look(rt *rapid.T) {
	if rapid.IntRange(0, 2).Draw(rt, "compare") == 0 {
		p.compare(rt)
	}
}

// compare holds all that can be read of the store against the model.
func (p *play) compare(rt *rapid.T) {
	p.must(p.db.Check())
	from := int64(rapid.IntRange(0, int(p.head)).Draw(rt, "from"))
	if rapid.Bool().Draw(rt, "at the floor") {
		from = max(0, p.floor-int64(rapid.IntRange(0, 1).Draw(rt, "before it")))
	}
	pos := feed.At(fmt.Sprint(from))
	since := int64(0)
	if rapid.IntRange(0, 3).Draw(rt, "at a time") == 0 {
		back := rapid.IntRange(0, 300).Draw(rt, "seconds ago")
		since = p.now() - int64(back)*1000
		start := feed.FromTime(time.UnixMilli(since))
		if pos.Start = start; rapid.Bool().Draw(rt, "without a token") {
			pos, from = feed.Position{Start: start}, 0
		}
	}
	o := feed.ReadOptions{MaxItems: rapid.IntRange(0, 3).Draw(rt, "page")}
	edge := ""
	for _, part := range p.parts() {
		if part.Range.Min != edge {
			rt.Fatalf("partition %+v begins behind %q", part, edge)
		}
		edge = part.Range.Max
		for _, r := range p.cut(part.Range, rapid.IntRange(1, 2).Draw(rt, "cut")) {
			p.compareLatest(rt, r, pos, o, from, since)
			p.compareVersions(rt, r, from, o)
		}
		p.compareWait(rt, part.Range, from)
	}
	p.compareItems(rt)
	p.compareKey(rt, from)
	p.compareCounts(rt)
	p.comparePending(rt, pos, from, since)
}

// cut is the range, or its halves with about equally many keys.
func (p *play) cut(r feed.Range, n int) []feed.Range {
	mid, ok := epk.Mid(p.kind, r.Min, r.Max)
	if n == 1 || !ok {
		return []feed.Range{r}
	}
	return []feed.Range{{Min: r.Min, Max: mid}, {Min: mid, Max: r.Max}}
}

// pages reads a range to its end, and holds each page against what was asked for.
func (p *play) pages(rt *rapid.T, r feed.Range, from feed.Position, o feed.ReadOptions) (all []feed.Change) {
	for {
		page, err := p.c.Read(p.t.Context(), r, from, o)
		if err != nil {
			rt.Fatalf("read %s from %s: %v", r, from, err)
		}
		if from = page.Next; len(page.Changes) == 0 {
			if from.Token != fmt.Sprintf(`"%d"`, p.c.Head()) {
				rt.Fatalf("the end of %s is %s, head is %d", r, from, p.c.Head())
			}
			return all
		}
		whole := page.Changes[0].LSN // of the page, all but its last transaction
		last := page.Changes[len(page.Changes)-1].LSN
		room := slices.IndexFunc(page.Changes, func(ch feed.Change) bool { return ch.LSN == last })
		again := len(all) > 0 && all[len(all)-1].LSN == whole
		if again || o.MaxItems > 0 && room >= o.MaxItems || page.Head < last {
			rt.Fatalf("a page of %s with %d changes at most, after %d others, head %d: %s", r, o.MaxItems, len(all),
				page.Head, brief(page.Changes))
		}
		all = append(all, page.Changes...)
	}
}

func (p *play) compareLatest(rt *rapid.T, r feed.Range, pos feed.Position, o feed.ReadOptions, from, since int64) {
	got := p.pages(rt, r, pos, o)
	want := p.visible(p.now(), func(d modelDoc) bool {
		return d.lsn > from && d.at >= since && r.Holds(p.place(d.key))
	})
	if len(got) != len(want) {
		rt.Fatalf("range %s from %s, %+v: %d changes, want %d: %s, want %+v", r, pos, o, len(got), len(want),
			brief(got), want)
	}
	for i, w := range want {
		g := got[i]
		if g.Op != feed.OpUpsert || (modelID{g.PartitionKey, g.ID}) != w.modelID || g.LSN != w.lsn ||
			g.ETag != w.etag || g.Time.UnixMilli() != w.at {
			rt.Fatalf("range %s from %s, change %d is %+v, want %+v", r, pos, i, g, w)
		}
		p.sameBody(rt, g.Body, w)
	}
}

func (p *play) compareVersions(rt *rapid.T, r feed.Range, from int64, o feed.ReadOptions) {
	o.Mode = feed.AllVersionsAndDeletes
	pos := feed.At(fmt.Sprint(from))
	_, err := p.c.Read(p.t.Context(), r, pos, o)
	if p.retention == 0 {
		if !errors.Is(err, feed.ErrBadRequest) {
			rt.Fatalf("read of all versions without retention: %v", err)
		}
		return
	}
	switch tooOld := errors.Is(err, feed.ErrTooOld); {
	case tooOld && from >= p.oldest():
		rt.Fatalf("position %d is too old, but the retention begins at %d: %v", from, p.oldest(), err)
	case tooOld:
		return
	case err != nil:
		rt.Fatal(err)
	case from < p.floor:
		rt.Fatalf("position %d is before versions are kept, at %d", from, p.floor)
	}
	got := p.pages(rt, r, pos, o)
	want := p.versions(r, from)
	if len(got) != len(want) {
		rt.Fatalf("range %s from %d: %d versions, want %d:\n%s\n%+v", r, from, len(got), len(want), brief(got), want)
	}
	for i, w := range want {
		g := got[i]
		same := (modelID{g.PartitionKey, g.ID}) == w.modelID && g.LSN == w.lsn && g.Op == w.op &&
			g.PreviousLSN == w.prev.lsn &&
			g.Expired == w.expired && g.ETag == w.etag && g.Time.UnixMilli() == w.at &&
			(g.Previous == nil) == (w.before == nil)
		if !same || w.before != nil && !reflect.DeepEqual(withoutSystem(g.Previous), decode(encode(w.before))) {
			rt.Fatalf("range %s from %d, version %d is %+v, want %+v", r, from, i, g, w)
		}
		p.sameBody(rt, g.Body, w.modelDoc)
	}
}

func withoutSystem(body []byte) map[string]any {
	value := decode(body)
	for name := range value {
		if strings.HasPrefix(name, "_") {
			delete(value, name)
		}
	}
	return value
}

// oldest is where a position may no longer be too old: by hand at the floor exactly, else
// the sweeper may have lifted that up to the retention, which may have been shorter before.
func (p *play) oldest() int64 {
	p.lifted = max(p.lifted, p.floor)
	for _, h := range p.history {
		if !p.byHand && h.at < p.now()-p.retention.Milliseconds() {
			p.lifted = max(p.lifted, h.lsn)
		}
	}
	return p.lifted
}

func (p *play) versions(r feed.Range, from int64) (want []modelVersion) {
	for _, h := range p.history {
		if h.lsn > from && r.Holds(p.place(h.key)) {
			want = append(want, h)
		}
	}
	return want
}
