package docstore_test

import (
	"flag"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"pgregory.net/rapid"

	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/cosmosdb/epk"
	"github.com/millrace/changefeed/internal/proof/detector"
)

var modelRuns = flag.Int("model.runs", 0, "histories of each model test; 0 is a few")

// runModel checks a property of histories in virtual time. One that fails is shrunk and told.
func runModel(t *testing.T, few int, property func(t *testing.T, rt *rapid.T)) {
	t.Helper()
	if f := flag.Lookup("rapid.checks"); f.Value.String() == f.DefValue {
		runs := few
		if *modelRuns > 0 {
			runs = *modelRuns
		}
		if err := flag.Set(f.Name, strconv.Itoa(runs)); err != nil {
			t.Fatal(err)
		}
		defer func() { _ = flag.Set(f.Name, f.DefValue) }() // was taken before
	}
	rapid.Check(t, func(rt *rapid.T) {
		var failure any
		synctest.Test(t, func(t *testing.T) {
			defer func() { failure = recover() }()
			property(t, rt)
		})
		if strings.HasSuffix(fmt.Sprintf("%T", failure), ".invalidData") {
			panic(failure) // at a place of its own: those that shrink tell failures by their places
		}
		if failure != nil {
			panic(failure)
		}
	})
}

// TestStoreEqualsModel does random things to a store and to a model of it, and compares
// all that can be read of both.
func TestStoreEqualsModel(t *testing.T) {
	runModel(t, detector.Rounds(70, 20), func(t *testing.T, rt *rapid.T) {
		p := newPlay(t, rt)
		defer p.end()
		rt.Repeat(p.actions())
		p.compare(rt)
	})
}

// play is a store beside its model.
type play struct {
	*modelStore
	t  *testing.T
	rt *rapid.T

	fs     *vfs.MemFS
	db     *docstore.DB
	c      *docstore.Container
	cells  int             // LSNs in a cell of tallies
	byHand bool            // nothing is swept but by the play
	common bool            // the retention is that of the store, not the container's own
	ahead  int64           // of the machine's clock, in milliseconds
	lifted int64           // where the floor may be
	tags   map[string]bool // all ETags that there were
	older  map[modelID]string
}

func newPlay(t *testing.T, rt *rapid.T) *play {
	p := &play{
		t: t, rt: rt, fs: vfs.NewCrashableMem(), tags: map[string]bool{}, older: map[modelID]string{},
		modelStore: &modelStore{docs: map[modelID]modelDoc{}},
	}
	p.byHand = rapid.IntRange(0, 2).Draw(rt, "sweeper") > 0
	spec := docstore.ContainerSpec{ID: "c", HashVersion: 2, Ranges: rapid.IntRange(1, 3).Draw(rt, "ranges")}
	switch rapid.IntRange(0, 3).Draw(rt, "key") {
	case 0:
		p.kind, p.key = epk.HashV2, []string{"/pk"}
	case 1:
		p.kind, p.key, spec.HashVersion = epk.HashV1, []string{"/pk"}, 1
	case 2:
		p.kind, p.key = epk.MultiHash, []string{"/pk", "/k/k"}
	case 3:
		p.kind, p.key = epk.HashV2, []string{"/id"}
	}
	p.unique = rapid.SampledFrom([][][]string{nil, {{"/u"}}, {{"/u", "/n/x"}, {"/n"}}}).Draw(rt, "unique keys")
	p.ttl = p.drawTTL(rt)
	spec.Paths, spec.UniqueKeys, spec.DefaultTTL = p.key, p.unique, p.ttl
	p.common = rapid.Bool().Draw(rt, "of the store")
	retention := p.drawRetention(rt)
	p.cells = rapid.IntRange(1, 4).Draw(rt, "cells")
	p.open() // when all is drawn: what is open is closed by nobody if drawing fails
	if p.common {
		p.must(p.db.SetRetention(t.Context(), retention))
	} else {
		spec.Retention = retention
	}
	p.retain(retention)
	c, err := p.db.CreateContainer(t.Context(), spec)
	p.must(err)
	p.c = c
	return p
}

func (p *play) drawTTL(rt *rapid.T) *int {
	return rapid.SampledFrom([]*int{nil, new(docstore.NoDefaultTTL), new(20), new(90)}).Draw(rt, "ttl")
}

func (p *play) drawRetention(rt *rapid.T) time.Duration {
	return rapid.SampledFrom([]time.Duration{0, 2 * time.Minute, 5 * time.Minute}).Draw(rt, "retention")
}

func (p *play) must(err error) {
	if err != nil {
		p.rt.Helper()
		p.rt.Fatal(err)
	}
}

func (p *play) open() {
	o := docstore.Options{CacheBytes: 1 << 20}.WithFS(p.fs).WithCells(p.cells)
	if p.byHand {
		o = o.Resting()
	}
	db, err := docstore.Open("db", o)
	p.must(err)
	p.db = db
	p.ahead = max(0, p.last-time.Now().UnixMilli())
}

func (p *play) end() {
	if err := p.db.Close(); err != nil {
		p.t.Error(err)
	}
}

func (p *play) actions() map[string]func(*rapid.T) {
	return map[string]func(*rapid.T){
		"":         p.look,
		"batch":    p.batch,
		"write":    p.write,
		"write 2":  p.write,
		"burst":    p.burst,
		"split":    p.split,
		"merge":    p.merge,
		"reopen":   p.reopen,
		"upgrade":  p.upgrade,
		"sleep":    p.sleep,
		"sweep":    p.sweepNow,
		"move":     p.move,
		"settings": p.settings,
		"clock":    p.glitch,
	}
}

// now is the container's time.
func (p *play) now() int64 { return time.Now().UnixMilli() + p.ahead }

func (p *play) write(rt *rapid.T) { p.commit(rt, p.draw(rt, 1)) }
func (p *play) batch(rt *rapid.T) { p.commit(rt, p.draw(rt, rapid.IntRange(2, 4).Draw(rt, "writes"))) }

func (p *play) commit(rt *rapid.T, d draft) {
	results, err := p.c.Commit(p.t.Context(), d.key, d.writes)
	p.judge(rt, d, results, err)
}

// burst commits several batches in one group, perhaps with a split among them.
func (p *play) burst(rt *rapid.T) {
	n := rapid.IntRange(2, 4).Draw(rt, "batches")
	cut := rapid.IntRange(0, 2*n).Draw(rt, "split before")
	drafts := make([]draft, n)
	results, errs := make([][]feed.Result, n), make([]error, n)
	for i := range drafts {
		drafts[i] = p.draw(rt, rapid.IntRange(1, 3).Draw(rt, "writes"))
	}
	part := p.parts()[0].ID
	release := p.db.Hold()
	split := make(chan error, 1)
	for i, d := range drafts {
		if i == cut {
			go func() { _, err := p.c.Split(p.t.Context(), part); split <- err }()
			synctest.Wait()
		}
		go func() { results[i], errs[i] = p.c.Commit(p.t.Context(), d.key, d.writes) }()
		synctest.Wait()
	}
	release()
	synctest.Wait()
	if cut < n {
		p.must(<-split)
	}
	for i, d := range drafts {
		p.judge(rt, d, results[i], errs[i])
	}
}

func (p *play) split(rt *rapid.T) {
	parts := p.parts()
	if len(parts) > 8 {
		return
	}
	old := rapid.SampledFrom(parts).Draw(rt, "partition")
	made, err := p.c.Split(p.t.Context(), old.ID)
	p.must(err)
	if len(made) != 2 || made[0].Range.Min != old.Range.Min || made[1].Range.Max != old.Range.Max ||
		!slices.Contains(made[0].Parents, old.ID) {
		rt.Fatalf("split of %+v gave %+v", old, made)
	}
}

func (p *play) merge(rt *rapid.T) {
	parts := p.parts()
	if len(parts) < 2 {
		return
	}
	i := rapid.IntRange(0, len(parts)-2).Draw(rt, "partition")
	made, err := p.c.Merge(p.t.Context(), parts[i].ID, parts[i+1].ID)
	p.must(err)
	if want := (feed.Range{Min: parts[i].Range.Min, Max: parts[i+1].Range.Max}); made.Range != want ||
		len(made.Parents) < 2 {
		rt.Fatalf("merge of %+v and %+v gave %+v", parts[i], parts[i+1], made)
	}
}

func (p *play) parts() []feed.Partition {
	parts, err := p.c.Partitions(p.t.Context())
	p.must(err)
	return parts
}

// reopen closes the store and opens it, or has the power fail.
func (p *play) reopen(rt *rapid.T) {
	synctest.Wait()
	after := p.fs
	if rapid.Bool().Draw(rt, "power fails") {
		after = p.fs.CrashClone(vfs.CrashCloneCfg{})
	}
	p.must(p.db.Close())
	p.fs = after
	p.open()
	c, err := p.db.Container("c")
	p.must(err)
	p.c = c
	p.settle()
}

// upgrade makes the store one of the version before, and opens it again.
func (p *play) upgrade(rt *rapid.T) {
	if rapid.IntRange(0, 2).Draw(rt, "change") > 0 {
		return
	}
	p.must(p.db.Untally(p.c))
	p.reopen(rt)
	if p.byHand && rapid.Bool().Draw(rt, "counted") {
		p.must(p.db.Tally(p.c))
	}
}

// sleep lets documents expire and versions be forgotten.
func (p *play) sleep(rt *rapid.T) {
	time.Sleep(time.Duration(rapid.SampledFrom([]int{1, 10, 20, 30, 60, 90, 100, 121, 200, 301}).Draw(rt,
		"seconds")) * time.Second)
	p.settle()
}

// sweepNow is a turn of the sweeper, whose every effect is known.
func (p *play) sweepNow(*rapid.T) {
	if !p.byHand {
		return
	}
	p.db.Sweep(p.c)
	p.swept()
	p.forget(p.now())
	stored := map[modelPlace]bool{}
	p.must(p.db.EachVersion(p.c, func(lsn int64, idx int) { stored[modelPlace{lsn, idx}] = true }))
	if kept := p.stored(); !maps.Equal(stored, kept) {
		p.rt.Fatalf("stored are the versions %v, want %v, behind %d of %+v", stored, kept, p.floor, p.history)
	}
	if p.head != p.used {
		p.rt.Fatalf("head is %d after %d commits and expiries", p.head, p.used)
	}
}

// swept has the model remove what the sweeper has, and read its LSNs.
func (p *play) swept() {
	before := p.head
	p.sweep(p.now())
	p.head = p.c.Head()
	p.nameExpiries(before)
	p.oldest()
}

// move does a part of the background work after a split or merge.
func (p *play) move(*rapid.T) {
	if p.byHand {
		_, err := p.db.MoveSome(p.c)
		p.must(err)
	}
}

// settle gives the sweeper the time it takes, where there is one.
func (p *play) settle() {
	if p.byHand {
		return
	}
	for again := true; again; {
		time.Sleep(3 * time.Second)
		synctest.Wait()
		again = false
		for _, d := range p.docs {
			end := p.expiry(d)
			again = again || end > p.now()-2500 && end <= p.now() // a moment ago: the sweeper may still rest
		}
	}
	p.swept()
}

// settings changes the time to live and the retention.
func (p *play) settings(rt *rapid.T) {
	if rapid.IntRange(0, 2).Draw(rt, "change") > 0 {
		return
	}
	p.settle()
	retention := p.drawRetention(rt)
	spec := p.c.Spec()
	spec.DefaultTTL = p.drawTTL(rt)
	if p.common {
		p.must(p.db.SetRetention(p.t.Context(), retention))
	} else {
		spec.Retention = retention
	}
	_, err := p.db.ReplaceContainer(p.t.Context(), spec)
	p.must(err)
	p.ttl = spec.DefaultTTL
	p.retain(retention)
	p.settle()
}

// glitch has the clock be ahead for one write, and go back.
func (p *play) glitch(rt *rapid.T) {
	if !p.byHand || rapid.IntRange(0, 2).Draw(rt, "change") > 0 {
		return
	}
	ahead := time.Duration(rapid.IntRange(1, 200).Draw(rt, "seconds")) * time.Second
	p.must(p.db.Glitch(p.c, ahead))
	p.ahead += ahead.Milliseconds()
	p.last = p.now()
}

// draft is a batch.
type draft struct {
	key    feed.PartitionKey
	writes []feed.Write
}

// draw makes a batch of n random writes.
func (p *play) draw(rt *rapid.T, n int) draft {
	var d draft
	key := rapid.IntRange(0, 7).Draw(rt, "key")
	for range n {
		value := map[string]any{"id": fmt.Sprint("i", rapid.IntRange(0, 4).Draw(rt, "id"))}
		p.setKey(value, key)
		if len(d.writes) > 0 && rapid.IntRange(0, 40).Draw(rt, "another key") == 0 {
			p.setKey(value, key+1)
		} else {
			d.key = p.keyOf(value)
		}
		op := rapid.SampledFrom(writeOps).Draw(rt, "op")
		w := feed.Write{Op: op, IfMatch: p.drawIfMatch(rt, d.key, value["id"].(string))}
		switch op {
		case feed.WritePatch:
			w.ID, w.Patch = value["id"].(string), drawPatch(rt)
		case feed.WriteDelete, feed.WriteRead:
			w.ID = value["id"].(string)
		default:
			drawValue(rt, value)
			w.Body = encode(value)
		}
		d.writes = append(d.writes, w)
	}
	return d
}

var writeOps = []feed.WriteOp{
	feed.WriteUpsert, feed.WriteUpsert, feed.WriteCreate, feed.WriteReplace,
	feed.WritePatch, feed.WriteDelete, feed.WriteRead,
}

// setKey gives a value one of some partition keys, of all types and lengths.
func (p *play) setKey(value map[string]any, n int) {
	kinds := []any{"p", 5, true, nil, strings.Repeat("long", 10), strings.Repeat("q", 110), strings.Repeat("q", 120)}
	switch {
	case p.key[0] == "/id":
		value["id"] = fmt.Sprint(strings.Repeat("id", n), n)
	case p.kind == epk.MultiHash:
		value["pk"], value["k"] = kinds[n%2*4], map[string]any{"k": n / 2}
	case n < len(kinds):
		value["pk"] = kinds[n]
	}
}

func (p *play) drawIfMatch(rt *rapid.T, key feed.PartitionKey, id string) string {
	now, old := p.docs[modelID{key, id}].etag, p.older[modelID{key, id}]
	return rapid.SampledFrom([]string{"", "", "", "", now, old, "*", `"none"`}).Draw(rt, "if match")
}
