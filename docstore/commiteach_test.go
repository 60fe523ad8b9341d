package docstore_test

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
)

// Operations that do not depend on each other do what they do if each is committed alone, under a single LSN. Half of
// them are refused, and each is refused for the same reason.
func TestCommitEachDoesWhatSingleOperationsDo(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		together, alone := openEach(rt), openEach(rt)
		for range rapid.IntRange(1, 3).Draw(rt, "rounds") {
			operations := rapid.SliceOfN(rapid.Custom(drawEach), 1, 12).Draw(rt, "operations")
			_, newest := together.Partition()
			done, refusals, err := together.CommitEach(t.Context(), slices.Concat(operations...))
			if err != nil {
				rt.Fatal(err)
			}
			wrote := false
			for _, operation := range operations {
				n := len(operation)
				want, err := alone.Commit(t.Context(), operation)
				sameOutcomes(rt, done.Results[:n], refusals[:n], want.Results, err)
				for i, r := range done.Results[:n] {
					if refusals[i] != nil || operation[i].Op == feed.WriteRead {
						continue
					}
					if wrote = true; r.LSN != newest+1 {
						rt.Fatalf("%v of %q has LSN %d, want %d", operation[i].Op, operation[i].ID, r.LSN, newest+1)
					}
				}
				done.Results, refusals = done.Results[n:], refusals[n:]
			}
			if _, now := together.Partition(); wrote != (now > newest) {
				rt.Fatalf("the newest LSN was %d and is %d; written: %v", newest, now, wrote)
			}
			sameContents(rt, together, alone)
		}
	})
}

// An expired document that holds a unique key makes the transaction begin again. What was refused stays refused, and
// what was done is done once.
func TestCommitEachBeginsAgainForAnExpiredUniqueKey(t *testing.T) {
	spec := docstore.ContainerSpec{DefaultTTL: new(docstore.NoDefaultTTL), UniqueKeys: [][]string{{"/name"}}}
	inBubble(t, spec, func(t *testing.T, _ *docstore.DB, c *docstore.Container) {
		for _, body := range []string{
			`{"id":"old","pk":"p","name":"x","ttl":1}`, `{"id":"there","pk":"p","name":"y"}`,
		} {
			if _, err := c.Upsert(t.Context(), []byte(body)); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(2 * time.Second) // of virtual time, until the first has expired
		p, err := c.LogicalPartition(feed.Key("p"))
		if err != nil {
			t.Fatal(err)
		}
		done, refusals, err := p.CommitEach(t.Context(), []docstore.Write{
			{Write: feed.Write{Op: feed.WriteCreate, Body: []byte(`{"id":"there","pk":"p"}`)}},
			{Write: feed.Write{Op: feed.WriteCreate, Body: []byte(`{"id":"first","pk":"p","name":"z"}`)}},
			{Write: feed.Write{Op: feed.WriteCreate, Body: []byte(`{"id":"second","pk":"p","name":"x"}`)}},
		})
		if err != nil || !errors.Is(refusals[0], feed.ErrConflict) || refusals[1] != nil || refusals[2] != nil {
			t.Fatalf("refused: %v, %v", refusals, err)
		}
		if !done.Results[1].Created || !done.Results[2].Created || done.Results[1].LSN != done.Results[2].LSN {
			t.Errorf("results: %+v", done.Results)
		}
	})
}

// each is a container in memory, and the place of its only key.
type each struct {
	docstore.LogicalPartition
	db *docstore.DB
	c  *docstore.Container
}

func openEach(rt *rapid.T) each {
	db, err := docstore.Open("", docstore.Options{InMemory: true})
	if err != nil {
		rt.Fatal(err)
	}
	rt.Cleanup(func() {
		if err := errors.Join(db.Check(), db.Close()); err != nil {
			rt.Error(err)
		}
	})
	c, err := db.CreateContainer(rt.Context(), docstore.ContainerSpec{
		ID: "c", Paths: []string{"/pk"}, UniqueKeys: [][]string{{"/name"}},
	})
	if err != nil {
		rt.Fatal(err)
	}
	p, err := c.LogicalPartition(feed.Key("p"))
	if err != nil {
		rt.Fatal(err)
	}
	return each{p, db, c}
}

// drawEach returns an operation: a write, or two that rename a document. Some have an invalid body.
func drawEach(rt *rapid.T) []docstore.Write {
	ids := rapid.SampledFrom([]string{"a", "b", "c", "d"})
	id := ids.Draw(rt, "id")
	body := rapid.SampledFrom([]string{
		`{"id":%q,"pk":"p","name":"x","v":1}`, `{"id":%q,"pk":"p","name":"y","v":2}`, `{"id":%q,"pk":"p","v":"text"}`,
		`{"id":%q,"pk":"another"}`, `{"id":%q,"pk":"p","ttl":0}`,
	}).Draw(rt, "body")
	w := docstore.Write{Write: feed.Write{ID: id}}
	w.Op = rapid.SampledFrom([]feed.WriteOp{
		feed.WriteCreate, feed.WriteReplace, feed.WriteUpsert, feed.WritePatch, feed.WriteDelete, feed.WriteRead,
	}).Draw(rt, "op")
	switch w.Op {
	case feed.WriteCreate, feed.WriteReplace, feed.WriteUpsert:
		w.Body = fmt.Appendf(nil, body, id)
	case feed.WritePatch:
		w.Patch = []feed.PatchOp{{Op: "incr", Path: "/v", Value: []byte("1")}}
	case feed.WriteDelete:
		if rapid.Bool().Draw(rt, "rename") {
			to := feed.Write{Op: feed.WriteCreate, Body: fmt.Appendf(nil, body, ids.Draw(rt, "to"))}
			return []docstore.Write{w, {Write: to, Joined: true}}
		}
	}
	return []docstore.Write{w}
}

// sameOutcomes compares the outcome of an operation among others with that of the operation alone. The writes of a
// refused operation have the same refusal and no result.
func sameOutcomes(rt *rapid.T, got []feed.Result, refusals []error, want []feed.Result, err error) {
	if one, ok := errors.AsType[*feed.WriteError](err); ok {
		for i := range got {
			if refusals[i] == nil || refusals[i].Error() != one.Err.Error() || got[i].LSN != 0 || got[i].Body != nil {
				rt.Fatalf("write %d of an operation: %v, %+v; alone: %v", i, refusals[i], got[i], one.Err)
			}
		}
		return
	}
	if err != nil {
		rt.Fatal(err)
	}
	for i := range got {
		if refusals[i] != nil || got[i].Created != want[i].Created || got[i].Charge != want[i].Charge ||
			plain(got[i].Body) != plain(want[i].Body) {
			rt.Fatalf("write %d of an operation: %v, %+v; alone: %+v", i, refusals[i], got[i], want[i])
		}
	}
}

var systemProperties = regexp.MustCompile(`,"_rid".*`)

// plain returns a document without its system properties.
func plain(body []byte) string { return systemProperties.ReplaceAllString(string(body), "") }

// sameContents compares the documents of two containers, in the order of their last changes.
func sameContents(rt *rapid.T, a, b each) {
	var texts [2]string
	for i, one := range []each{a, b} {
		page, err := one.c.Read(rt.Context(), feed.FullRange(), feed.Position{Start: feed.FromBeginning()},
			feed.ReadOptions{})
		if err != nil {
			rt.Fatal(err)
		}
		all := make([]string, len(page.Changes))
		for at, change := range page.Changes {
			all[at] = plain(change.Body)
		}
		texts[i] = strings.Join(all, "\n")
	}
	if texts[0] != texts[1] {
		rt.Fatalf("together:\n%s\nalone:\n%s", texts[0], texts[1])
	}
}
