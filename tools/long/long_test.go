package main

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace/changefeed/feed"
)

func TestEveryJobNamesATestAndItsFlags(t *testing.T) {
	jobs, err := allJobs("../..")
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for _, j := range jobs {
		if names[j.name] {
			t.Errorf("two jobs are called %s", j.name)
		}
		names[j.name] = true
		text := sources(t, filepath.Join("../..", j.dir))
		if !strings.Contains(text, "func "+j.test+"(") {
			t.Errorf("%s: no test %s in %s", j.name, j.test, j.dir)
		}
		for _, arg := range j.args(0, 1) {
			flag, _, _ := strings.Cut(strings.TrimLeft(arg, "-"), "=")
			if own := strings.HasPrefix(arg, "-") && !strings.HasPrefix(flag, "test."); own &&
				!strings.Contains(text, `"`+flag+`"`) {
				t.Errorf("%s: the tests of %s have no flag %s", j.name, j.dir, flag)
			}
		}
	}
	for _, name := range strangers {
		if !slices.ContainsFunc(jobs, func(j job) bool { return j.test == name }) {
			t.Errorf("%s is no fuzz target", name)
		}
	}
}

// sources is the text of all tests of a directory.
func sources(t *testing.T, dir string) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		all.Write(text)
	}
	return all.String()
}

func TestARunGoesOnWhereTheLastOneStopped(t *testing.T) {
	dir := t.TempDir()
	a := job{name: "a", unit: "seeds", goal: 100, size: 30}
	b := job{name: "b", unit: "seeds", goal: 10, size: 1}
	stuck := job{name: "fuzz", unit: "seconds", goal: 100, size: 60, again: true}
	s, err := loadState(dir)
	if err != nil {
		t.Fatal(err)
	}
	if got := s.next([]job{a, b}); got.name != "a" {
		t.Errorf("%s is next, want the first of those that are as far", got.name)
	}
	line := s.note(a, 30, time.Second, nil)
	s.note(a, 30, time.Second, errors.New("failed"))
	s.note(stuck, 60, time.Second, errors.New("failed"))
	if err := s.save(dir, line); err != nil {
		t.Fatal(err)
	}
	again, err := loadState(dir)
	if err != nil {
		t.Fatal(err)
	}
	if got := again.next([]job{a, b}); got.name != "b" {
		t.Errorf("%s is next, want the one of which less is done", got.name)
	}
	if got := again.Jobs["a"]; got.Done != 60 || got.Failures != 1 || got.Seconds != 2 {
		t.Errorf("a: %+v, want 60 done and a failure in 2 s", got)
	}
	if got := again.Jobs["fuzz"]; got.Done != 0 || got.Failures != 1 {
		t.Errorf("fuzz: %+v, want nothing done, because its failure comes again", got)
	}
	for _, c := range []struct {
		j    job
		done int
		left time.Duration
		want int
	}{
		{a, 60, 0, 30},
		{a, 90, 0, 10},
		{a, 90, time.Second, 10},
		{stuck, 0, 20 * time.Second, 20},
		{stuck, 0, time.Millisecond, 1},
		{job{unit: "minutes", goal: 30}, 0, 10*time.Minute + time.Second, 10},
		{job{unit: "minutes", goal: 30}, 10, 0, 20},
	} {
		if got := c.j.piece(c.done, c.left); got != c.want {
			t.Errorf("%+v with %d done and %v left: a piece of %d, want %d", c.j.name, c.done, c.left, got, c.want)
		}
	}
}

func TestTheLedgerFindsWhatIsMissingOrWrong(t *testing.T) {
	written := func() *ledger {
		l := newLedger()
		l.begin("a")
		l.written("a", 5, change{upsert, 1})
		return l
	}
	seen := []feed.Change{{ID: "a", LSN: 5}}
	good := written()
	before, ok := good.settled("a")
	good.found("a read", "a", before, 1)
	good.versions(seen)
	good.latest("pull", seen)
	if left := good.missing("pull"); !ok || len(left) != 0 || good.verdict() != nil {
		t.Errorf("%t, %v, %v: want nothing wrong", ok, left, good.verdict())
	}
	for name, wrong := range map[string]func(l *ledger){
		"a version that is in no feed":    func(l *ledger) { l.latest("pull", seen) },
		"a document that a reader misses": func(l *ledger) { l.versions(seen) },
		"a version that comes twice": func(l *ledger) {
			l.latest("pull", seen)
			l.versions(seen)
			l.versions(seen)
		},
		"a version that nobody wrote": func(l *ledger) {
			l.latest("pull", seen)
			l.versions(seen)
			l.versions([]feed.Change{{ID: "b", LSN: 6}})
		},
		"a read that finds nothing": func(l *ledger) {
			l.latest("pull", seen)
			l.versions(seen)
			l.found("a read", "a", before, 0)
		},
		"an LSN that goes back": func(l *ledger) {
			l.latest("pull", seen)
			l.versions(seen)
			l.begin("a")
			l.written("a", 4, change{remove, 2})
			l.versions([]feed.Change{{ID: "a", LSN: 4}})
		},
		"a document that expires by itself": func(l *ledger) {
			l.latest("pull", seen)
			l.versions(seen)
			l.versions([]feed.Change{{ID: "a", LSN: 6, Expired: true}})
		},
		"a document that is not there": func(l *ledger) {
			l.latest("pull", seen)
			l.versions(seen)
			l.begin("a")
			l.unwritten("a")
		},
	} {
		l := written()
		wrong(l)
		if len(l.missing("pull")) == 0 && l.verdict() == nil {
			t.Errorf("%s is not found", name)
		}
	}
}
