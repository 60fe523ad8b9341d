package changefeedtest

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/changefeed/feed"
)

// The effect of a batch. These tests judge a committer by the feed and not by its own results, because handlers see
// only the feed.

// TestCommitter proves a [feed.Committer] against every sentence of its documentation. TestCommitter reads the effect
// of a batch, or its absence, from the store's Source, because handlers lose a batch that is in the results and not in
// the feed.
func TestCommitter(t *testing.T, h Harness) {
	for _, c := range slices.Concat(commitCases, limitCases, patchCases) {
		t.Run(c.name, func(t *testing.T) { c.run(t, h) })
	}
}

// commitCases test the effect of a batch.
var commitCases = []containerCase{
	{name: "a batch has one LSN, and a result for each write", test: batchResults},
	{name: "created tells whether the item was new", test: createdFlag},
	{name: "a batch applies all writes or none, and the error tells which was refused", test: batchAtomic},
	{name: "writes apply in order, and reads see their place in the batch", test: batchOrder},
	{name: "create refuses what exists; replace, patch, delete and read what does not", test: refusals},
	{name: "an ETag that is not the stored one is refused", test: ifMatch},
	{
		name: "system properties that the caller sends are the store's", needs: []Ability{SystemProperties},
		test: systemProperties,
	},
	{name: "a deleted item can be created again", test: createAgain},
	{name: "concurrent creates have one winner", test: raceCreates},
	{name: "concurrent conditional writes lose no update", test: raceUpdates},
	{name: "a commit with an ended context is an error", test: endedCommit},
	{
		name: "an expired item no longer exists", needs: []Ability{Expiry, PassingTime},
		container: Container{Expiry: true}, test: expiredIsGone,
	},
}

// batchResults compares the results of a batch with the feed: all writes have the same LSN, by which a handler
// recognizes a transaction.
func batchResults(s *containerTest) {
	results := s.commit(feed.Key("k"),
		feed.Write{Op: feed.WriteCreate, Body: doc("a", "k", 1)},
		feed.Write{Op: feed.WriteUpsert, Body: doc("b", "k", 2)},
		feed.Write{Op: feed.WriteCreate, Body: doc("c", "k", 3)},
		feed.Write{Op: feed.WriteDelete, ID: "c"},
	)
	for i, r := range results[:3] {
		if r.LSN == 0 || r.LSN != results[0].LSN || !strings.HasPrefix(r.ETag, `"`) || !r.Created ||
			number(r.Body) != i+1 {
			s.Errorf("result %d is %+v, want LSN %d, a quoted ETag, created, the item", i, r, results[0].LSN)
		}
		if !s.h.lacksAbility(SystemProperties) && !strings.Contains(string(r.Body), `"_etag"`) {
			s.Errorf("result %d has no _etag: %s: want it, or list %q in Lacks", i, r.Body, SystemProperties)
		}
	}
	if end := results[3]; end.Body != nil || end.Created {
		s.Errorf("result of the delete is %+v, want no body", end)
	}
	changes, _ := s.readAll(s.wholeRange(), beginning, feed.ReadOptions{})
	s.wantIDs("the feed", changes, "a", "b")
	for i, c := range changes {
		if c.LSN != results[i].LSN || c.ETag != results[i].ETag {
			s.Errorf("change %+v, want LSN and ETag of %+v", c, results[i])
		}
	}
	if later := s.put("k", "d"); later <= results[0].LSN {
		s.Errorf("LSN %d of a later batch is not above %d", later, results[0].LSN)
	}
}

// createdFlag expects each write to report whether the item was new.
func createdFlag(s *containerTest) {
	for i, c := range []struct {
		op   feed.WriteOp
		want bool
	}{
		{feed.WriteUpsert, true},
		{feed.WriteUpsert, false},
		{feed.WriteReplace, false},
		{feed.WriteDelete, false},
		{feed.WriteCreate, true},
	} {
		w := feed.Write{Op: c.op, ID: "a", Body: doc("a", "k", i)}
		if got := s.commit(feed.Key("k"), w)[0].Created; got != c.want {
			s.Errorf("write %d (%v): created = %v, want %v", i, c.op, got, c.want)
		}
	}
}

// wantRejected commits a batch with a bad write, and checks that nothing was written.
func (s *containerTest) wantRejected(want error, index int, key feed.PartitionKey, writes ...feed.Write) {
	s.Helper()
	_, before := s.readAll(s.wholeRange(), beginning, feed.ReadOptions{})
	results, err := s.Committer.Commit(s.Context(), key, writes)
	if !errors.Is(err, want) {
		s.Errorf("Commit(%s, %s) = %d results, %v, want error %q", key, brief(writes), len(results), err, want)
	}
	if refused, ok := errors.AsType[*feed.WriteError](err); index >= 0 && (!ok || refused.Index != index ||
		refused.Write.Op != writes[index].Op) {
		s.Errorf("Commit(%s, %s) = %v, want a WriteError of write %d", key, brief(writes), err, index)
	}
	changes, _ := s.readAll(s.wholeRange(), before, feed.ReadOptions{})
	s.wantIDs("after a refused batch", changes)
}

// brief names writes in an error.
func brief(writes []feed.Write) string {
	var b strings.Builder
	for i, w := range writes {
		if i == 3 {
			b.WriteString(" …")
			break
		}
		b.WriteString(" " + w.Op.String() + " " + w.ID + " " + string(w.Body[:min(len(w.Body), 60)]))
	}
	return b.String()
}

// batchAtomic refuses a batch at its first, middle and last write. An outbox relies on all or nothing: an outbox exists
// to prevent an event without its document, and the reverse.
func batchAtomic(s *containerTest) {
	s.put("k", "exists")
	key := feed.Key("k")
	fine := feed.Write{Op: feed.WriteUpsert, Body: doc("fine", "k", 1)}
	conflict := feed.Write{Op: feed.WriteCreate, ID: "exists", Body: doc("exists", "k", 2)}
	end := feed.Write{Op: feed.WriteDelete, ID: "exists"}
	s.wantRejected(feed.ErrConflict, 0, key, conflict, fine)
	s.wantRejected(feed.ErrConflict, 1, key, fine, conflict, end)
	s.wantRejected(feed.ErrConflict, 2, key, fine, fine, conflict)
	s.wantRejected(feed.ErrNotFound, 1, key, end, end)
	s.commit(key, end, fine)
	changes, _ := s.readAll(s.wholeRange(), beginning, feed.ReadOptions{})
	s.wantIDs("the feed", changes, "fine")
}

// batchOrder writes and reads the same item within a batch: each read sees the earlier writes, and a batch of reads
// alone adds nothing to the feed.
func batchOrder(s *containerTest) {
	read := feed.Write{Op: feed.WriteRead, ID: "a"}
	results := s.commit(feed.Key("k"),
		feed.Write{Op: feed.WriteCreate, Body: doc("a", "k", 1)}, read,
		feed.Write{Op: feed.WriteReplace, Body: doc("a", "k", 2)}, read,
		feed.Write{Op: feed.WriteDelete, ID: "a"},
		feed.Write{Op: feed.WriteCreate, Body: doc("a", "k", 3)}, read,
	)
	for i, want := range map[int]int{1: 1, 3: 2, 6: 3} {
		if got := number(results[i].Body); got != want {
			s.Errorf("read %d sees n %d, want %d", i, got, want)
		}
	}
	changes, next := s.readAll(s.wholeRange(), beginning, feed.ReadOptions{})
	s.wantIDs("the feed", changes, "a")
	s.commit(feed.Key("k"), read)
	changes, _ = s.readAll(s.wholeRange(), next, feed.ReadOptions{})
	s.wantIDs("the feed after a read", changes)
}

// refusals writes to existing and missing items, beside an item with the same id under another partition key.
func refusals(s *containerTest) {
	key := feed.Key("k")
	s.put("k", "exists")
	s.put("other", "missing") // an item of another logical partition
	s.wantRejected(feed.ErrConflict, 0, key, feed.Write{Op: feed.WriteCreate, Body: doc("exists", "k", 1)})
	patch := []feed.PatchOp{{Op: "set", Path: "/n", Value: json.RawMessage("1")}}
	for _, w := range []feed.Write{
		{Op: feed.WriteReplace, ID: "missing", Body: doc("missing", "k", 1)},
		{Op: feed.WritePatch, ID: "missing", Patch: patch},
		{Op: feed.WriteDelete, ID: "missing"},
		{Op: feed.WriteRead, ID: "missing"},
	} {
		if w.Op == feed.WritePatch && s.h.lacksAbility(Patching) {
			continue
		}
		s.wantRejected(feed.ErrNotFound, 0, key, w)
	}
}

// ifMatch writes under ETags. The error must be ErrPrecondition, because this error tells the writer to read again and
// retry.
func ifMatch(s *containerTest) {
	key := feed.Key("k")
	s.put("k", "a")
	first := s.commit(key, feed.Write{Op: feed.WriteRead, ID: "a"})[0].ETag
	second := s.commit(key, feed.Write{Op: feed.WriteReplace, Body: doc("a", "k", 2), IfMatch: first})[0].ETag
	if second == first {
		s.Errorf("ETag %s is the same after a write", first)
	}
	patch := []feed.PatchOp{{Op: "incr", Path: "/n", Value: json.RawMessage("1")}}
	// A valid write precedes each of these: the whole batch must be refused.
	for _, etag := range []string{first, `"nonsense"`} {
		for _, w := range []feed.Write{
			{Op: feed.WriteUpsert, Body: doc("a", "k", 3)},
			{Op: feed.WriteReplace, Body: doc("a", "k", 3)},
			{Op: feed.WritePatch, ID: "a", Patch: patch},
			{Op: feed.WriteDelete, ID: "a"},
		} {
			if w.Op == feed.WritePatch && s.h.lacksAbility(Patching) {
				continue
			}
			w.IfMatch = etag
			s.wantRejected(feed.ErrPrecondition, 1, key, feed.Write{Body: doc("b", "k", 1)}, w)
		}
	}
	change := feed.Write{Op: feed.WritePatch, ID: "a", Patch: patch, IfMatch: second}
	if s.h.lacksAbility(Patching) {
		change = feed.Write{Op: feed.WriteReplace, Body: doc("a", "k", 3), IfMatch: second}
	}
	third := s.commit(key, change)[0]
	fourth := s.commit(key, feed.Write{Body: doc("a", "k", 9), IfMatch: third.ETag})[0]
	s.commit(key, feed.Write{Op: feed.WriteDelete, ID: "a", IfMatch: fourth.ETag})
	if number(third.Body) != 3 || number(fourth.Body) != 9 {
		s.Errorf("after the conditional writes: %s, %s", third.Body, fourth.Body)
	}
}

// systemProperties writes an item in the form of a read, with stale system properties.
func systemProperties(s *containerTest) {
	body := json.RawMessage(`{"id":"a","pk":"k","_etag":null,"_ts":0,"_rid":7,"_self":{},"_attachments":null,"_other":1}`)
	result := s.commit(feed.Key("k"), feed.Write{Body: body})[0]
	var stored map[string]json.RawMessage
	if err := json.Unmarshal(result.Body, &stored); err != nil {
		s.Fatalf("body %s: %v", result.Body, err)
	}
	if etag, err := json.Marshal(result.ETag); err != nil || string(stored["_etag"]) != string(etag) {
		s.Errorf("_etag is %s, want %s", stored["_etag"], etag)
	}
	if string(stored["_ts"]) == "0" || string(stored["_other"]) != "1" {
		s.Errorf("stored item %s, want the store's _ts and the caller's _other", result.Body)
	}
}

// createAgain deletes and creates an item: the ETag must differ, because otherwise a writer from before the delete
// would overwrite the new item.
func createAgain(s *containerTest) {
	key := feed.Key("k")
	create := feed.Write{Op: feed.WriteCreate, Body: doc("a", "k", 1)}
	first := s.commit(key, create)[0]
	s.remove("k", "a")
	if second := s.commit(key, create)[0]; second.ETag == first.ETag || !second.Created {
		s.Errorf("created again with %+v, want another ETag than %s", second, first.ETag)
	}
}

// raceCreates makes 16 writers create an item at the same time.
func raceCreates(s *containerTest) {
	var wins, losses atomic.Int64
	var wg sync.WaitGroup
	for n := range 16 {
		wg.Go(func() {
			_, err := s.Committer.Commit(s.Context(), feed.Key("k"),
				[]feed.Write{{Op: feed.WriteCreate, Body: doc("a", "k", n)}})
			switch {
			case err == nil:
				wins.Add(1)
			case errors.Is(err, feed.ErrConflict):
				losses.Add(1)
			default:
				s.Errorf("Commit: %v", err)
			}
		})
	}
	wg.Wait()
	if wins.Load() != 1 || losses.Load() != 15 {
		s.Errorf("%d of 16 concurrent creates succeeded and %d conflicted", wins.Load(), losses.Load())
	}
}

// raceUpdates increments a number by concurrent patches and conditional replaces.
func raceUpdates(s *containerTest) {
	const writers, each = 6, 15
	key := feed.Key("k")
	s.put("k", "a")
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for range each {
				if err := s.incrementByOne(key, w%2 == 0); err != nil {
					s.Errorf("increment: %v", err)
					return
				}
			}
		})
	}
	wg.Wait()
	last := s.commit(key, feed.Write{Op: feed.WriteRead, ID: "a"})[0]
	if number(last.Body) != writers*each {
		s.Errorf("n is %d after %d concurrent increments", number(last.Body), writers*each)
	}
}

// incrementByOne adds 1 by a patch, or by conditional replaces until one succeeds.
func (s *containerTest) incrementByOne(key feed.PartitionKey, byPatch bool) error {
	if byPatch && !s.h.lacksAbility(Patching) {
		patch := []feed.PatchOp{{Op: "incr", Path: "/n", Value: json.RawMessage("1")}}
		_, err := s.Committer.Commit(s.Context(), key, []feed.Write{{Op: feed.WritePatch, ID: "a", Patch: patch}})
		return err
	}
	for {
		now, err := s.Committer.Commit(s.Context(), key, []feed.Write{{Op: feed.WriteRead, ID: "a"}})
		if err != nil {
			return err
		}
		next := feed.Write{Op: feed.WriteReplace, Body: doc("a", "k", number(now[0].Body)+1), IfMatch: now[0].ETag}
		if _, err = s.Committer.Commit(s.Context(), key, []feed.Write{next}); !errors.Is(err, feed.ErrPrecondition) {
			return err
		}
	}
}

// endedCommit expects an error, because the caller has gone and cannot use a result.
func endedCommit(s *containerTest) {
	ctx, cancel := s.contextThatEndsSoon()
	cancel()
	if _, err := s.Committer.Commit(ctx, feed.Key("k"), []feed.Write{{Body: doc("a", "k", 1)}}); err == nil {
		s.Error("Commit with an ended context: no error")
	}
}

// expiredIsGone expects an expired item to be absent, before any background work.
func expiredIsGone(s *containerTest) {
	key := feed.Key("k")
	s.commit(key, s.writeWithTTL("a"))
	s.passTime(5 * time.Second)
	s.commit(key, feed.Write{Op: feed.WriteRead, ID: "a"})
	s.passTime(7 * time.Second)
	s.wantRejected(feed.ErrNotFound, 0, key, feed.Write{Op: feed.WriteRead, ID: "a"})
	if !s.commit(key, feed.Write{Op: feed.WriteCreate, Body: doc("a", "k", 1)})[0].Created {
		s.Error("an item in the place of an expired one is not created")
	}
}
