package delivery

import "time"

// How many keys a batch has
//
// A batch of several keys saves calls, but if the handler hangs on a key, the other keys of the batch wait too. So a
// batch has several keys only if that pays: if a call for twice as many changes takes less than twice as long. The
// engine begins with a key a batch, tries twice as many, and keeps that number if each change has become cheaper. The
// engine goes on to compare, because a handler may change. A handler that works on one change after the other nearly
// always receives one key, and a stuck key stops no other.

// width is how many lanes a batch may have.
type width struct {
	lanes  int
	at     int                // exponent: lanes is 2 to this power
	trying bool               // so many lanes for the first time, or again
	now    sample             // with as many lanes
	known  [widthSteps]sample // the last one with fewer, by their at
	few    int                // calls in a row with less than half as many
	rest   int                // calls until more lanes are tried again
}

// sample is some calls of the handler.
type sample struct {
	calls   int
	changes float64
	took    float64
}

const (
	widthSample  = 4                // calls that are compared
	widthRest    = 200              // calls until a width is tried again that did not pay
	widthQuick   = time.Millisecond // a call that takes less is not worth saving
	widthAtFirst = 1
	widthSteps   = 16
)

// observe takes in a call of the handler.
func (w *width) observe(lanes, changes int, took time.Duration) {
	if w.rest > 0 {
		w.rest--
		return
	}
	if 2*lanes <= w.lanes { // there were too few keys to say anything of so many
		if w.few++; w.few == widthRest {
			w.to(w.at-1, false)
		}
		return
	}
	w.few = 0
	if took < widthQuick {
		return
	}
	w.now.calls++
	w.now.changes += float64(changes)
	w.now.took += float64(took)
	if w.now.calls < widthSample {
		return
	}
	if w.at > 0 && !w.now.pays(w.known[w.at-1]) {
		if w.trying {
			w.rest = widthRest
		}
		w.to(w.at-1, false)
		return
	}
	w.known[w.at] = w.now
	w.to(min(w.at+1, widthSteps-1), true)
}

// to changes the width.
func (w *width) to(at int, trying bool) {
	w.at, w.lanes, w.trying, w.few, w.now = at, 1<<at, trying, 0, sample{}
}

// pays reports whether calls for more changes take less longer than half of that: for twice as many, less than 1.5
// times.
func (s sample) pays(before sample) bool {
	return 2*s.took*before.changes <= before.took*(before.changes+s.changes)
}
