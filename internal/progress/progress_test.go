package progress

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"
)

// play moves a progress by a script, and gives what it says after each word of it:
//
//	d5  a page of 2 changes up to position 5 is delivered; pages are counted from 1
//	e7  an empty page up to position 7
//	f1  the handler of page 1 returns nil     x1  it fails
//	c1  it checkpoints page 1 by hand         k1  and that is stored
//	s1  page 1 is to come in smaller parts    z   a split begins
//	w   the lease is written
func play(p *Progress[string], script string, now *time.Time) (said []string) {
	pages := map[string]*Delivery[string]{}
	for word := range strings.FieldsSeq(script) {
		*now = now.Add(time.Second)
		at, on := word[1:], pages[word[1:]]
		text := ""
		switch word[0] {
		case 'd':
			pages[strconv.Itoa(len(pages)+1)] = p.Deliver(at, 2, *now)
		case 'e':
			p.Pass(at)
		case 'f':
			p.Finish(on)
		case 'x':
			text = map[bool]string{true: "!"}[p.Fail(on)]
		case 'c':
			text = map[Standing]string{Stored: "=", Void: "?", Frozen: "?"}[p.Checkpoint(on)]
		case 'k':
			p.Confirm(on)
		case 's':
			text = map[bool]string{true: "/"}[p.Shrink(on)]
		case 'z':
			p.Freeze()
		case 'w':
			p.Wrote(p.Unsaved, *now)
		}
		said = append(said, fmt.Sprintf("%s+%d%s", p.Position, p.Attempts, text))
		if p.Due(*now) {
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
		r      Rules
		script string
		want   string
	}{
		{"each page", Rules{}, "d5 f1 w d9 f2", "0+2 5+0* 5+0 5+0 9+0*"},
		{"failures are those of the next page", Rules{}, "d5 x1 x1 f1 d9 x2", "0+2 0+3! 0+4! 5+0* 5+0* 5+1!*"},
		{"an empty page moves the lease, and ends its failures", Rules{}, "e3 d5 x1", "3+0 3+0 3+1!"},
		{"an empty page that does not move keeps them", Rules{}, "e0 d5 x1", "0+2 0+2 0+3!"},
		{"pages in any order count without a gap", Rules{}, "d5 d9 d12 f3 f1 f2", "0+2 0+2 0+2 0+2 5+0* 12+0*"},
		{"an empty page after one that is open", Rules{}, "d5 e7 f1", "0+2 0+2 5+0*"},
		{"the same empty page again", Rules{}, "d5 e7 f1 e7", "0+2 0+2 5+0* 7+0*"},
		{"every 4 changes", Rules{Items: 4}, "d5 f1 d9 f2 w d12 f3", "0+2 5+0 5+0 9+0* 9+0 9+0 12+0"},
		{"a renewal covers changes", Rules{Items: 4}, "d5 f1 w d9 f2", "0+2 5+0 5+0 5+0 9+0"},
		{"every 4 seconds", Rules{Every: 4 * time.Second}, "d5 f1 e7 e8 w e9", "0+2 5+0 7+0 8+0* 8+0 9+0"},
		{"a renewal of nothing is no checkpoint", Rules{Every: 4 * time.Second}, "w w e1 d5 f1", "0+2 0+2 1+0 1+0 5+0*"},
		{"by hand only", Rules{Manual: true}, "d5 f1 e7 d9 f2 e10", "0+2 0+2 0+2 0+2 0+2 0+2"},
		{"by hand, for all before", Rules{Manual: true}, "d5 f1 d9 f2 c2 k2 e10 c1 c2", "0+2 0+2 0+2 0+2 9+0 9+0 10+0 10+0= 10+0="},
		{"an older one moves nothing back", Rules{Manual: true}, "d5 f1 d9 f2 c2 c1 k2", "0+2 0+2 0+2 0+2 9+0 9+0 9+0"},
		{"idle progress waits for the store", Rules{Manual: true}, "d5 f1 c1 e7 k1 e8", "0+2 0+2 5+0 5+0 5+0 8+0"},
		{"failures of a page that is not the next", Rules{Manual: true}, "d5 f1 d9 x2 c1 k1 x2", "0+2 0+2 0+2 0+2 5+0 5+0 5+2!"},
		{"a failure after a checkpoint", Rules{Manual: true}, "d5 c1 x1 k1 x1", "0+2 5+0 5+0! 5+0 5+0"},
		{"smaller parts", Rules{Manual: true}, "d8 s1 d4 c1 c2 k2", "0+2 0+2/ 0+2 0+2? 4+0 4+0"},
		{"done by hand before it was too late", Rules{Manual: true}, "d8 c1 s1", "0+2 8+0 8+0"},
		{"a split", Rules{Manual: true}, "d5 f1 z c1 k1", "0+2 0+2 0+2 0+2? 0+2"},
	} {
		now := time.Unix(0, 0)
		p := New("0", 2, c.r, now)
		if got := strings.Join(play(&p, c.script, &now), " "); got != c.want {
			t.Errorf("%s: %s says\n%s, want\n%s", c.name, c.script, got, c.want)
		}
	}
}

// A page that took too long comes again from where it began, with half as many changes,
// and pages grow again to the size that they had.
func TestPagesShrinkAndGrow(t *testing.T) {
	now := time.Unix(0, 0)
	p := New("0", 0, Rules{}, now)
	page := func(n int) *Delivery[string] { return p.Deliver("8", n, now) }
	for i, want := range []int{4, 2, 1} {
		d := page(8 >> i)
		if !p.Shrink(d) || !d.void || p.Limit != want || p.Read != "0" || p.number != 0 || len(p.open) != 0 {
			t.Fatalf("after %d: limit %d, read from %v, %d pages", d.changes, p.Limit, p.Read, p.number)
		}
	}
	d := page(1)
	p.Grow(d)
	if p.Limit != 2 {
		t.Errorf("limit %d after a quick page of 1", p.Limit)
	}
	p.Grow(d) // less than it may have tells nothing
	if p.Limit != 2 {
		t.Errorf("limit %d after a page that was smaller", p.Limit)
	}
	p.Grow(page(2))
	if p.Grow(page(4)); p.Limit != 0 {
		t.Errorf("limit %d, want none at the full size", p.Limit)
	}
}
