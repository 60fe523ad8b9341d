package changefeed

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/millrace/changefeed/internal/balance"
)

// play moves a progress by a script, and gives what it says after each word of it:
//
//	d5  a page of 2 changes up to position 5 is delivered; pages are counted from 1
//	e7  an empty page up to position 7
//	f1  the handler of page 1 returns nil     x1  it fails
//	c1  it checkpoints page 1 by hand         k1  and that is stored
//	s1  page 1 is to come in smaller parts    z   a split begins
//	w   the lease is written
func play(p *progress, script string, now *time.Time) (said []string) {
	pages := map[string]*delivery{}
	for word := range strings.FieldsSeq(script) {
		*now = now.Add(time.Second)
		at, on := At(word[1:]), pages[word[1:]]
		text := ""
		switch word[0] {
		case 'd':
			pages[strconv.Itoa(len(pages)+1)] = p.deliver(Page{Next: at, Changes: make([]Change, 2)}, *now)
		case 'e':
			p.pass(at)
		case 'f':
			p.finish(on)
		case 'x':
			text = map[bool]string{true: "!"}[p.fail(on)]
		case 'c':
			stored, err := p.checkpoint(on)
			text = map[bool]string{true: "="}[stored]
			if errors.Is(err, ErrHandlerTimeout) || errors.Is(err, ErrLeaseLost) {
				text = "?"
			}
		case 'k':
			p.confirm(on)
		case 's':
			text = map[bool]string{true: "/"}[p.shrink(on)]
		case 'z':
			p.freeze()
		case 'w':
			p.wrote(p.mark(&Record{}), *now)
		}
		var l Record
		p.mark(&l)
		said = append(said, fmt.Sprintf("%s+%d%s", l.Position, l.Attempts, text))
		if p.due(*now) {
			said[len(said)-1] += "*"
		}
	}
	return said
}

// What a lease is to say after each step: position+attempts, and * when that must be
// stored; after a failure ! when the lease says it; after a checkpoint by hand = when it
// is stored already, ? when it is refused; / when a page is void.
func TestALeaseSaysHowFarItsPagesAreDone(t *testing.T) {
	for _, c := range []struct {
		name   string
		o      Options
		script string
		want   string
	}{
		{"each page", Options{}, "d5 f1 w d9 f2", "0+2 5+0* 5+0 5+0 9+0*"},
		{"failures are those of the next page", Options{}, "d5 x1 x1 f1 d9 x2", "0+2 0+3! 0+4! 5+0* 5+0* 5+1!*"},
		{"an empty page moves the lease, and ends its failures", Options{}, "e3 d5 x1", "3+0 3+0 3+1!"},
		{"an empty page that does not move keeps them", Options{}, "e0 d5 x1", "0+2 0+2 0+3!"},
		{"pages in any order count without a gap", Options{}, "d5 d9 d12 f3 f1 f2", "0+2 0+2 0+2 0+2 5+0* 12+0*"},
		{"an empty page after one that is open", Options{}, "d5 e7 f1", "0+2 0+2 5+0*"},
		{"every 4 changes", Options{CheckpointItems: 4}, "d5 f1 d9 f2 w d12 f3", "0+2 5+0 5+0 9+0* 9+0 9+0 12+0"},
		{"a renewal covers changes", Options{CheckpointItems: 4}, "d5 f1 w d9 f2", "0+2 5+0 5+0 5+0 9+0"},
		{"every 4 seconds", Options{CheckpointEvery: 4 * time.Second}, "d5 f1 e7 e8 w e9", "0+2 5+0 7+0 8+0* 8+0 9+0"},
		{"a renewal of nothing is no checkpoint", Options{CheckpointEvery: 4 * time.Second}, "w w e1 d5 f1", "0+2 0+2 1+0 1+0 5+0*"},
		{"by hand only", Options{Manual: true}, "d5 f1 e7 d9 f2 e10", "0+2 0+2 0+2 0+2 0+2 0+2"},
		{"by hand, for all before", Options{Manual: true}, "d5 f1 d9 f2 c2 k2 e10 c1 c2", "0+2 0+2 0+2 0+2 9+0 9+0 10+0 10+0= 10+0="},
		{"an older one moves nothing back", Options{Manual: true}, "d5 f1 d9 f2 c2 c1 k2", "0+2 0+2 0+2 0+2 9+0 9+0 9+0"},
		{"idle progress waits for the store", Options{Manual: true}, "d5 f1 c1 e7 k1 e8", "0+2 0+2 5+0 5+0 5+0 8+0"},
		{"failures of a page that is not the next", Options{Manual: true}, "d5 f1 d9 x2 c1 k1 x2", "0+2 0+2 0+2 0+2 5+0 5+0 5+2!"},
		{"a failure after a checkpoint", Options{Manual: true}, "d5 c1 x1 k1 x1", "0+2 5+0 5+0! 5+0 5+0"},
		{"smaller parts", Options{Manual: true}, "d8 s1 d4 c1 c2 k2", "0+2 0+2/ 0+2 0+2? 4+0 4+0"},
		{"done by hand before it was too late", Options{Manual: true}, "d8 c1 s1", "0+2 8+0 8+0"},
		{"a split", Options{Manual: true}, "d5 f1 z c1 k1", "0+2 0+2 0+2 0+2? 0+2"},
	} {
		now := time.Unix(0, 0)
		p := newProgress(Record{Kind: KindLease, Position: At("0"), Attempts: 2}, c.o, now)
		if got := strings.Join(play(&p, c.script, &now), " "); got != c.want {
			t.Errorf("%s: %s says\n%s, want\n%s", c.name, c.script, got, c.want)
		}
	}
}

// A page that took too long comes again from where it began, with half as many changes,
// and pages grow again to the size that they had.
func TestPagesShrinkAndGrow(t *testing.T) {
	now := time.Unix(0, 0)
	p := newProgress(Record{Kind: KindLease, Position: At("0")}, Options{}, now)
	page := func(n int) *delivery { return p.deliver(Page{Next: At("8"), Changes: make([]Change, n)}, now) }
	for i, want := range []int{4, 2, 1} {
		d := page(8 >> i)
		if !p.shrink(d) || !d.void || p.limit != want || p.read != At("0") || p.number != 0 || len(p.open) != 0 {
			t.Fatalf("after %d: limit %d, read from %v, %d pages", d.changes, p.limit, p.read, p.number)
		}
	}
	d := page(1)
	p.grow(d)
	if p.limit != 2 {
		t.Errorf("limit %d after a quick page of 1", p.limit)
	}
	p.grow(d) // less than it may have tells nothing
	if p.limit != 2 {
		t.Errorf("limit %d after a page that was smaller", p.limit)
	}
	p.grow(page(2))
	if p.grow(page(4)); p.limit != 0 {
		t.Errorf("limit %d, want none at the full size", p.limit)
	}
}

// A lease is written on the beat of its instance, at its place in the burst; later after a
// checkpoint if that is safe, and at the latest a Renew after the last write if not.
func TestWhenALeaseIsRenewed(t *testing.T) {
	phase := time.Unix(0, 0)
	second := func(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
	for _, c := range []struct {
		name              string
		renew, expiration float64
		written           float64
		place             float64
		held              int
		want              float64
	}{
		{"on the beat", 17, 60, 0, 0, 1, 17},
		{"at its place in the burst", 17, 60, 0.125, 0.5, 1, 17.125},
		{"at its place in a long burst", 17, 60, 1, 0.5, 80, 18},
		{"a burst of half a Renew at most", 10, 60, 2.5, 0.5, 1000, 12.5},
		{"the next beat after a checkpoint that was long before", 17, 60, 5, 0, 1, 17},
		{"the beat after it, after one just before", 17, 60, 12, 0, 1, 34},
		{"no later than safe", 17, 36, 12, 0, 1, 29},
	} {
		o := Options{Renew: second(c.renew), Expiration: second(c.expiration)}
		got := renewal(phase.Add(second(c.written)), phase, c.place, c.held, o).Sub(phase)
		if got != second(c.want) {
			t.Errorf("%s: %v, want %v", c.name, got, second(c.want))
		}
	}
}

// Who says first that the work ends says why; a lease that is lost is lost, whatever was
// said; and there is no ending that nobody gave.
func TestTheFirstEndingCounts(t *testing.T) {
	r := idle(Options{})
	for _, lost := range []bool{false, true} {
		tn := r.newTenure(Record{Kind: KindLease, Token: "-FF"})
		if e := tn.ending(); !e.none() || tn.untilStopped.Err() != nil {
			t.Fatalf("ends by itself: %+v", e)
		}
		given := ending{why: ReasonGiven, to: balance.Owner{Instance: "b", Epoch: "e"}}
		if !tn.stop(given) || tn.stop(ending{why: ReasonStopped}) || tn.ending() != given {
			t.Errorf("ends with %+v, want %+v", tn.ending(), given)
		}
		if tn.untilStopped.Err() == nil || tn.untilLost.Err() != nil || tn.untilDrained.Err() != nil {
			t.Error("a stop ends more than what is begun, or less")
		}
		if lost {
			if tn.lose(ErrLeaseLost); tn.ending() != (ending{why: ReasonLost}) || tn.untilDrained.Err() == nil {
				t.Errorf("a lost lease ends with %+v", tn.ending())
			}
		}
		tn.lose(nil)
	}
	tn := r.newTenure(Record{})
	if tn.lose(ErrLeaseLost); tn.stop(ending{why: ReasonStopped}) || tn.ending().why != ReasonLost {
		t.Errorf("a lost lease was stopped: %+v", tn.ending())
	}
}
