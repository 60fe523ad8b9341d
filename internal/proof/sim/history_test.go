package sim

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/proof/detector"
)

// A short history of one lease: who asks what, one after the other unless told otherwise.
type episode struct {
	*request
	shown *feed.Record
}

var (
	hostA, hostB = &instance{name: "a"}, &instance{name: "b"}
	begin        = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
)

// lease is a lease of an owner at an LSN, as written at that second.
func lease(by *instance, lsn string, second int) feed.Record {
	l := feed.Record{
		Kind: feed.KindLease, Token: "-FF", Expiration: time.Minute, Position: feed.At(`"` + lsn + `"`),
		Timestamp: begin.Add(time.Duration(second) * time.Second),
	}
	if by != nil {
		l.Owner, l.Epoch = by.name, by.name+"1"
	}
	return l
}

// writes is an update that was answered.
func writes(by *instance, etag, next string, l feed.Record) episode {
	l.ETag = etag
	return episode{request: &request{verb: update, by: by, sent: l, etag: next, ending: done}}
}

func (e episode) how(end ending) episode {
	e.ending = end
	return e
}

// retired is a write that retires the lease.
func (e episode) retired() episode {
	e.sent.State = feed.StateRetired
	return e
}

// fenced is a take that waits before it begins.
func (e episode) fenced() episode {
	e.sent.Fence = begin.Add(time.Hour)
	return e
}

func creates(l feed.Record) episode {
	return episode{request: &request{verb: create, by: hostA, sent: l, etag: "1", ending: done}}
}

func deletes(by *instance, etag string) episode {
	e := writes(by, etag, "", lease(hostA, "1", 5))
	e.verb = remove
	return e
}

func lists(etag string, l feed.Record) episode {
	l.ETag = etag
	return episode{&request{verb: list, by: hostB, ending: done}, &l}
}

// explains tells whether a history has an explanation. Each request takes as long as until
// the next one begins; its second is that of its lease's timestamp.
func explains(episodes []episode) bool {
	var looks []*look
	now := begin
	for i, e := range episodes {
		l := &look{request: e.request}
		if l.verb != list {
			now = l.sent.Timestamp
		}
		if l.me = (owner{l.by.name, l.by.name + "1"}); e.shown != nil {
			l.shown, l.present = *e.shown, true
		}
		l.begun, l.ended = now, now
		if l.asked, l.told = int64(2*i), int64(2*i+1); l.ending == unknown {
			l.told = int64(2*len(episodes) + i)
		}
		looks = append(looks, l)
	}
	return explain(looks) == nil
}

func TestAHistoryOfALeaseIsRightOrWrong(t *testing.T) {
	made, taken := creates(lease(nil, "1", 0)), writes(hostA, "1", "2", lease(hostA, "1", 1))
	for _, c := range []struct {
		name  string
		right bool
		then  []episode
	}{
		{"the owner moves on", true, []episode{
			writes(hostA, "2", "3", lease(hostA, "5", 2)),
			lists("3", lease(hostA, "5", 2)),
		}},
		{"the position moves back", false, []episode{
			writes(hostA, "2", "3", lease(hostA, "5", 2)),
			writes(hostA, "3", "4", lease(hostA, "4", 3)),
		}},
		{"a write with an old ETag", false, []episode{
			writes(hostA, "2", "3", lease(hostA, "5", 2)),
			writes(hostA, "2", "4", lease(hostA, "6", 3)),
		}},
		{"a conflict without a reason", false, []episode{writes(hostA, "2", "", lease(hostA, "5", 2)).how(conflict)}},
		{"a listing of what was", false, []episode{
			writes(hostA, "2", "3", lease(hostA, "5", 2)),
			lists("2", lease(hostA, "1", 1)),
		}},
		{"a theft after the expiration", true, []episode{
			writes(hostB, "2", "3", lease(hostB, "1", 61)),
			writes(hostB, "3", "4", lease(hostB, "5", 62)),
		}},
		{"a theft before", false, []episode{writes(hostB, "2", "3", lease(hostB, "1", 60))}},
		{"a theft before, with a fence", true, []episode{
			writes(hostB, "2", "3", lease(hostB, "1", 20)).fenced(),
			writes(hostB, "3", "4", lease(hostB, "5", 61)),
		}},
		{"a fence that is passed too early", false, []episode{
			writes(hostB, "2", "3", lease(hostB, "1", 20)).fenced(),
			writes(hostB, "3", "4", lease(hostB, "5", 60)),
		}},
		{"a theft that moves the position", false, []episode{writes(hostB, "2", "3", lease(hostB, "5", 90))}},
		{"a hand-over", true, []episode{
			writes(hostA, "2", "3", lease(hostB, "5", 2)),
			writes(hostB, "3", "4", lease(hostB, "5", 3)),
		}},
		{"a free lease is taken", true, []episode{
			writes(hostA, "2", "3", lease(nil, "5", 2)),
			writes(hostB, "3", "4", lease(hostB, "5", 3)),
		}},
		{"an old owner writes after a new one", false, []episode{
			writes(hostA, "2", "3", lease(hostB, "5", 2)), writes(hostB, "3", "4", lease(hostB, "6", 3)),
			writes(hostA, "4", "5", lease(hostB, "6", 4)),
		}},
		{"a lost answer, carried out", true, []episode{
			writes(hostA, "2", "3", lease(hostA, "5", 2)).how(unknown),
			lists("3", lease(hostA, "5", 2)),
		}},
		{"a lost answer, not carried out", true, []episode{
			writes(hostA, "2", "3", lease(hostA, "5", 2)).how(unknown),
			lists("2", lease(hostA, "1", 1)),
		}},
		{"a lost answer, carried out and undone", false, []episode{
			writes(hostA, "2", "3", lease(hostA, "5", 2)).how(unknown), lists("3", lease(hostA, "5", 2)),
			lists("2", lease(hostA, "1", 1)),
		}},
		{"a retired lease is made anew", true, []episode{
			writes(hostA, "2", "3", lease(nil, "5", 2)).retired(),
			writes(hostB, "3", "4", lease(hostB, "1", 3)),
		}},
		{
			"a retired lease is retired further back", false,
			[]episode{
				writes(hostA, "2", "3", lease(nil, "5", 2)).retired(),
				writes(hostB, "3", "4", lease(hostB, "1", 3)).retired(),
			},
		},
		{"the owner deletes", true, []episode{deletes(hostA, "2")}},
		{"somebody else deletes", false, []episode{deletes(hostB, "2")}},
	} {
		if got := explains(append([]episode{made, taken}, c.then...)); got != c.right {
			t.Errorf("%s: explained %v, want %v", c.name, got, c.right)
		}
	}
}

// What a delete removes was shown before; that says nothing of when it was removed.
func TestALateDeleteIsExplained(t *testing.T) {
	h := &history{owners: map[*instance]owner{hostA: {"a", "a1"}}}
	l := lease(hostA, "1", 1)
	made := h.noteRequest(hostA, create, l)
	l.ETag = "1"
	h.noteAnswer(made, l.ETag, nil)
	for i, records := range [][]feed.Record{{l}, {l}, nil} {
		looking := h.noteRequest(hostB, list, feed.Record{})
		looking.listed = map[string]feed.Record{}
		for _, r := range records {
			looking.listed[r.Token] = r
		}
		h.noteSight(records)
		h.noteAnswer(looking, "", nil)
		if i == 0 {
			h.noteRequest(hostA, remove, l) // never answered
		}
	}
	g := newLedger(feed.LatestVersion, 0)
	if h.checkHistories(g); len(g.broken) > 0 {
		t.Error(g.broken)
	}
}

// stale is a lease store whose listings lag one behind.
type stale struct {
	feed.LeaseStore
	mu   *sync.Mutex
	last *[]feed.Record
}

func (s stale) List(ctx context.Context) ([]feed.Record, time.Time, error) {
	records, now, err := s.LeaseStore.List(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	if old := *s.last; err == nil && len(old) > 0 {
		records, *s.last = old, records
	} else {
		*s.last = records
	}
	return records, now, err
}

func (s stale) Follow(ctx context.Context, cursor string) ([]feed.Record, string, time.Time, error) {
	return s.LeaseStore.(feed.Follower).Follow(ctx, cursor)
}

func TestHistoriesTellALeaseStoreWithADefect(t *testing.T) {
	if detector.On {
		t.Skip("it plays many worlds to test their checkers, which has nothing to do with data races")
	}
	for name, bug := range map[string]Bug{
		"ignores ETags": func(s feed.LeaseStore) feed.LeaseStore { return blind{s} },
		"lists what was": func(s feed.LeaseStore) feed.LeaseStore {
			return stale{s, new(sync.Mutex), new([]feed.Record)}
		},
	} {
		t.Run(name, func(t *testing.T) {
			const most = 60 // a busy machine hides the defect in some
			for seed := range uint64(most) {
				if broken, _ := play(t, seed, seed%2 == 0, bug); strings.Contains(strings.Join(broken, "\n"),
					"history of") {
					return
				}
			}
			t.Errorf("%d seeds with a lease store that %s have histories that one without defects can have", most, name)
		})
	}
}
