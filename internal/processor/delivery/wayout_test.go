package delivery

import "slices"

// The way out: the troubles end, the handler and the letter box work, and what is under way is answered in its order.
// Then everything must be done, the position at the end, and nothing left of what was held, set aside or noted.

// mostSteps is how long the way out may be.
const mostSteps = 600

// wayOut goes from a state to the end, until it comes to one that a way out was found for.
func (s *search) wayOut(w *world, id [16]byte) {
	var passed [][16]byte
	w.fair, w.outage = true, false
	w.left = bounds{}
	for range mostSteps {
		if s.good[id] {
			break
		}
		passed = append(passed, id)
		if !w.goOn() {
			w.checkEnd()
			break
		}
		if w.check(); w.broken != "" {
			break
		}
		id = w.id(s.canon)
	}
	switch {
	case w.broken != "":
		w.broken = "on the way out: " + w.broken
	case len(passed) == mostSteps:
		w.broken = "no way out"
	}
	for _, id := range passed {
		s.good[id] = true
	}
}

// goOn takes the next step of a fair run, and reports false if there is none.
func (w *world) goOn() bool {
	asked := -1
	for i, q := range w.records {
		if !q.asked {
			asked = i
		}
	}
	switch {
	case w.wait < 0:
		w.do(action{kind: next})
	case len(w.flying) > 0:
		w.do(action{kind: answer})
	case asked >= 0:
		w.do(action{kind: ask, at: int8(asked)})
	case w.hasPage():
		w.do(action{kind: readPage})
	case len(w.handed) > 0:
		w.do(action{kind: confirm})
	case w.wait < Never:
		w.do(action{kind: pass})
	default:
		return w.releaseNext()
	}
	return true
}

// releaseNext releases a key that is held.
func (w *world) releaseNext() bool {
	for i, key := range w.keys() {
		if l := w.e.lanes.own[key]; l != nil && l.hold != notHeld && len(w.records) == 0 {
			w.do(action{kind: freeIt, at: int8(i)})
			return true
		}
	}
	return false
}

// checkEnd checks that nothing is left.
func (w *world) checkEnd() {
	at, n := w.leaseNow()
	e := w.e
	switch {
	case at != w.ends[len(w.ends)-1]:
		w.breach("the end is at %d", at)
	case e.Counts().Items != 0 || e.Counts().Bytes != 0 || e.Counts().SetAside != 0 || len(e.lanes.own) > 0 ||
		len(e.batches) > 0 || len(e.feed.pages) > 0:
		w.breach("at the end %d changes, %d bytes, %d keys set aside, %d lanes, %d batches, %d pages are left",
			e.Counts().Items, e.Counts().Bytes, e.Counts().SetAside, len(e.lanes.own), len(e.batches),
			len(e.feed.pages))
	case len(n.Open)+len(n.Tried)+len(n.Held)+len(n.Aside) > 0 || n.Suspect != nil:
		w.breach("at the end the lease says %+v", n)
	case len(w.records) > 0:
		w.breach("request %v has no answer", w.records)
	}
	for _, r := range n.Recalls { // an outage may have begun with them, as nothing was handled since
		i := slices.IndexFunc(w.all, func(c *truth) bool { return letterName(c.lsn, c.place) == r.Letter })
		if c := w.all[i]; !w.good.Before(c.failedAt) && !w.good.Before(w.born) {
			w.breach("at the end %s is to be handed over again", r.Letter)
		}
	}
	for _, c := range w.all {
		if !c.done && !c.parked && !c.hidden && !c.skipped {
			w.breach("%s is lost", letterName(c.lsn, c.place))
		}
	}
	for _, o := range w.box {
		if o.held && o.life == w.life {
			w.breach("%s is held at the end", o.name)
		}
	}
}
