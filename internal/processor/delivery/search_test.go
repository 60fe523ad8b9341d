package delivery

import (
	"crypto/sha256"
	"flag"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/millrace/changefeed/internal/notes"
	"github.com/millrace/changefeed/internal/proof/detector"
)

// The search visits every state of small worlds. Two states are the same if the engine and the world around it are,
// whenever they are: see canon_test.go. In each state everything is checked that must hold, and that there is a way
// out.

var (
	searchLong = flag.Bool("search.long", false, "search larger worlds, for some minutes")
	searchOnly = flag.String("search.world", "", "search this world alone")
)

type heldKey = notes.HeldKey

// node is a state, as the way to it.
type node struct {
	path []action
	id   [16]byte
}

// search is the search of one world.
type search struct {
	set   *setting
	long  bool
	seen  map[[16]byte]bool
	good  map[[16]byte]bool // states from which there is a way out
	canon *canon
	queue []node // the shortest ways first
	edges int
	fail  func(path []action, broken string)
}

// mostStates is how many states a world may have: it has too many choices if it has more.
const mostStates = 70_000

func newSearch(s *setting, long bool, fail func([]action, string)) *search {
	return &search{
		set: s, long: long, seen: map[[16]byte]bool{}, good: map[[16]byte]bool{}, canon: newCanon(),
		fail: fail,
	}
}

// run visits all states. It ends with the first promise that is broken.
func (s *search) run() {
	w := newWorld(s.set, s.long)
	s.arrive(w, nil)
	for len(s.queue) > 0 {
		n := s.queue[0]
		s.queue = s.queue[1:]
		w := s.replay(n.path)
		if w.id(s.canon) != n.id {
			s.fail(n.path, "the same way leads to another state")
			return
		}
		all := w.actions()
		for i, a := range all {
			if i > 0 {
				w = s.replay(n.path)
			}
			s.edges++
			path := append(slices.Clone(n.path), a)
			w.do(a)
			if !s.arrive(w, path) {
				return
			}
		}
		if len(s.seen) > mostStates && !s.long {
			s.fail(nil, "too many states")
			return
		}
	}
}

func (s *search) replay(path []action) *world {
	w := newWorld(s.set, s.long)
	for _, a := range path {
		w.do(a)
	}
	return w
}

// arrive checks a state, and remembers to go on from there if it is new.
func (s *search) arrive(w *world, path []action) bool {
	id := w.id(s.canon)
	if s.seen[id] && w.broken == "" {
		return true
	}
	s.seen[id] = true
	w.check()
	if w.broken == "" {
		s.queue = append(s.queue, node{path, id})
		s.wayOut(w, id)
	}
	if w.broken != "" {
		s.fail(path, w.broken)
		return false
	}
	return true
}

// id is the name of a state.
func (w *world) id(c *canon) [16]byte {
	sum := sha256.Sum256(c.of(w))
	return [16]byte(sum[:16])
}

// visits counts the transitions of batches that the search has seen.
type visits [Over + 1][RequestServed + 1][Over + 1]atomic.Int64

func TestEveryInterleavingOfSmallWorlds(t *testing.T) {
	if detector.On {
		t.Skip("an engine has no goroutines, so the detector has nothing to find here, and takes minutes for that")
	}
	var seen visits
	var states, edges atomic.Int64
	var asked requestVisits
	requestVisited = func(from RequestState, because RequestEvent, next RequestState) {
		asked[from][because][next].Add(1)
	}
	visited = func(from BatchState, because BatchEvent, next BatchState) { seen[from][because][next].Add(1) }
	t.Run("worlds", func(t *testing.T) {
		all, failFast := t, flag.Lookup("test.failfast").Value.String() == "true"
		for i := range worlds {
			set := &worlds[i]
			if *searchOnly != "" && *searchOnly != set.name {
				continue
			}
			t.Run(set.name, func(t *testing.T) {
				t.Parallel()
				if failFast && all.Failed() { // the flag does not end parallel tests
					t.Skip("another world has failed")
				}
				s := newSearch(set, *searchLong && set.long != bounds{}, func(path []action, broken string) {
					t.Errorf("%s\n%s", broken, describe(set, *searchLong && set.long != bounds{}, path))
				})
				s.run()
				states.Add(int64(len(s.seen)))
				edges.Add(int64(s.edges))
				t.Logf("%d states, %d steps", len(s.seen), s.edges)
			})
		}
	})
	visited, requestVisited = nil, nil
	t.Logf("%d states, %d steps", states.Load(), edges.Load())
	if *searchOnly == "" && !t.Failed() {
		seen.checkAll(t)
		asked.checkAll(t)
	}
}

// checkAll checks that each line of the table was seen.
func (v *visits) checkAll(t *testing.T) {
	for from, events := range transitions {
		for because, all := range events {
			for _, next := range all {
				divided := from == ToCall && because == TimeReached && next == Over // TestAnOldBatchIsDividedInAnOutage
				if v[from][because][next].Load() == 0 && !divided {
					t.Errorf("the search has not seen %v %v %v", from, because, next)
				}
			}
		}
	}
}

// requestVisits counts those of requests.
type requestVisits [Answered + 1][Withdrawn + 1][Answered + 1]atomic.Int64

func (v *requestVisits) checkAll(t *testing.T) {
	for from, events := range requestTransitions {
		for because, all := range events {
			for _, next := range all {
				// TestHeldLettersComeAfterEarlierChangesOfTheirKey
				early := from == Listing && because == LetterThere && next == Answered
				if v[from][because][next].Load() == 0 && !early {
					t.Errorf("the search has not seen request %v %v %v", from, because, next)
				}
			}
		}
	}
}

// describe tells the way to a state.
func describe(set *setting, long bool, path []action) string {
	var text strings.Builder
	w := newWorld(set, long)
	for _, a := range path {
		what := ""
		if a.kind == answer {
			what = effectText(w, w.flying[a.at])
		}
		w.do(a)
		at, n := w.leaseNow()
		fmt.Fprintf(&text, "  %-14v %-30s position %d %+v\n", a, what, at, n)
		for _, do := range w.flying {
			fmt.Fprintf(&text, "%50s %s\n", "", effectText(w, do))
		}
	}
	return text.String()
}

func effectText(w *world, do Effect) string {
	var text strings.Builder
	text.WriteString(fmt.Sprintf("effect %d", do.Kind))
	if do.Batch != nil {
		for _, c := range do.Batch.Changes {
			text.WriteString(" " + w.truth(c).key + letterName(c.LSN, c.Place))
		}
	}
	if do.Request != nil {
		text.WriteString(fmt.Sprintf(" of %s %s, state %d", do.Request.Key, do.Request.Letter, do.Request.State))
	}
	return text.String() + do.Key
}
