package delivery

import (
	"errors"
	"slices"
)

// checkRepeat reports an effect that only repeats the one that was answered last: a busy loop.
func (w *world) checkRepeat(do Effect) {
	l := w.last
	switch {
	case do.Kind != l.Kind:
	case do.Kind == ListLetters && do.Request == l.Request,
		do.Kind == FindLetter && do.Request == l.Request,
		do.Kind == Remove && do.Request == l.Request && do.Request.Current == l.Request.Current,
		do.Kind == ReadKey && do.Key == l.Key && do.From == l.From,
		do.Kind == Park && do.Batch == l.Batch:
		w.breach("effect %d again at once", do.Kind)
	}
}

// checkCall checks that a batch may go to the handler.
func (w *world) checkCall(b *Batch) {
	w.checkHands(b)
	w.called = nil
	if len(b.Changes) == 1 && w.e.inHand == 1 {
		w.called = w.truth(b.Changes[0])
	}
	if b.IsRedriven() {
		return
	}
	here := map[*truth]bool{}
	for _, c := range b.Changes {
		t := w.truth(c)
		switch since, held := w.held[c.Key]; {
		case t.finished:
			w.breach("%s %s comes again", c.Key, letterName(t.lsn, t.place))
		case held && t.lsn >= since:
			w.breach("%s %s passes held letters", c.Key, letterName(t.lsn, t.place))
		case c.calls != t.calls && w.life == 0 && !t.forgotten:
			w.breach("%s is called for the time %d, and the engine says %d", letterName(t.lsn, t.place), t.calls+1,
				c.calls+1)
		}
		w.checkOrder(t, here)
		here[t] = true
	}
	for _, q := range w.requests() {
		if q.State == Redriving && w.hasKey(b, q.Key) {
			w.breach("%s passes a letter that is to be handed over", q.Key)
		}
	}
}

// requests are the requests that the engine serves.
func (w *world) requests() (all []*Request) {
	for _, key := range w.keys() {
		if l := w.e.lanes.own[key]; l != nil {
			all = append(all, l.requests...)
		}
	}
	return all
}

// checkOrder checks that what came before a change of its key is finished, or in the batch before it.
func (w *world) checkOrder(t *truth, here map[*truth]bool) {
	for _, before := range w.all {
		if before == t {
			return
		}
		isEarlier := before.key == t.key || w.set.rules.InOrder && !w.replayed
		if isEarlier && !before.finished && !before.hidden && !here[before] {
			w.breach("%s of %s passes %s", letterName(t.lsn, t.place), t.key, letterName(before.lsn, before.place))
		}
	}
}

// checkHands checks that no key of a batch is in another one in hand.
func (w *world) checkHands(b *Batch) {
	for _, do := range w.flying {
		if do.Kind != Call && do.Kind != Park {
			continue
		}
		for _, c := range do.Batch.Changes {
			if w.hasKey(b, c.Key) || w.set.rules.InOrder {
				w.breach("%s is in hand twice", c.Key)
			}
		}
	}
}

// checkPark checks that a change may be parked.
func (w *world) checkPark(b *Batch) {
	w.checkHands(b)
	c := b.Changes[0]
	t := w.truth(c)
	name := letterName(t.lsn, t.place)
	since, held := w.held[t.key]
	switch {
	case len(b.Changes) != 1:
		w.breach("a letter of %d changes", len(b.Changes))
	case t.finished:
		w.breach("%s is parked and was finished", name)
	case b.IsHeld() && (!held || t.lsn < since):
		w.breach("%s is parked as held, and its key is free", name)
	case b.IsHeld():
	case errors.Is(b.Err, ErrCrashed) && (t.blamed == 0 || t.calls < w.set.rules.MaxAttempts):
		w.breach("%s is parked as crashed after %d calls and %d crashes", name, t.calls, t.blamed)
	case !errors.Is(b.Err, ErrCrashed) && !t.failedAlone:
		w.breach("%s is parked and has not failed alone", name)
	}
	cutOnce := w.life > 0 && t.isShared(w.all) // the lease counts by LSN
	if c.Calls() > t.calls && !cutOnce || c.Calls() < t.calls && w.life == 0 && !t.forgotten && !b.IsHeld() {
		w.breach("%s is parked after %d calls, and the letter says %d", name, t.calls, c.Calls())
	}
	w.checkOrder(t, nil)
}

// isShared reports whether a change has its LSN with others.
func (t *truth) isShared(all []*truth) bool {
	return slices.ContainsFunc(all, func(o *truth) bool { return o != t && o.lsn == t.lsn })
}

// checkReadKey checks that a key is read once at a time.
func (w *world) checkReadKey(do Effect) {
	for _, c := range w.all {
		if c.key == do.Key && c.calls > 0 { // what the lease does not say is lost
			c.forgotten = true
		}
	}
	for _, other := range w.flying {
		if other.Kind == ReadKey && other.Key == do.Key {
			w.breach("%s is read twice", do.Key)
		}
	}
}

// check checks what must hold in every state.
func (w *world) check() {
	w.checkLease()
	w.checkCounts()
	w.checkHolds()
	w.checkAge()
	for _, do := range w.flying {
		if q := do.Request; q != nil && q.State == Asked {
			w.breach("request %s is asked and under way", q.Token)
		}
	}
}

// checkLease checks that nothing would be lost if the lease were stored now and had another owner.
func (w *world) checkLease() {
	at, n := w.leaseNow()
	lease := storedLease{at, n}
	if at < w.lease.at {
		w.breach("the position went back from %d to %d", w.lease.at, at)
	}
	for _, t := range w.all {
		switch {
		case t.done || t.parked || t.hidden || t.skipped:
		case lease.says(t):
			w.breach("%s is not finished, and the lease says so: %+v", letterName(t.lsn, t.place), lease)
		case w.set.shared && t.lsn <= at:
			w.breach("%s is not finished, and the position of a shared lease is %d", letterName(t.lsn, t.place), at)
		}
	}
	for key := range w.held {
		if !slices.ContainsFunc(n.Held, func(h heldKey) bool { return h.Key == key }) && !w.isFreeing(key) {
			w.breach("%s is held, and the lease does not say it", key)
		}
	}
}

// checkAge checks that nothing waits that is too old, in an outage too.
func (w *world) checkAge() {
	if w.wait <= 0 || !w.e.rules.CanPark || w.e.inHand > 0 {
		return
	}
	for _, b := range w.e.batches {
		if (b.State == ToCall || b.State == Suspect) && b.isFirst() && b.isOld(w.e) && !b.notBefore.After(w.now) {
			w.breach("%d is too old, and waits in state %d", b.Changes[0].LSN, b.State)
		}
	}
}

// isFreeing reports whether the engine has freed a key and has not said so yet.
func (w *world) isFreeing(key string) bool {
	return slices.ContainsFunc(w.e.effects, func(do Effect) bool { return do.Kind == Answer && do.Request.Key == key })
}

// checkHolds checks that somebody can end each hold, and that no held letter of a free key is left.
func (w *world) checkHolds() {
	for _, l := range w.e.lanes.own {
		has := slices.ContainsFunc(w.box, func(o letter) bool { return o.key == l.key })
		asked := slices.ContainsFunc(w.records, func(r record) bool { return r.key == l.key })
		for _, r := range w.e.recalls.listOpen(w.e) {
			asked = asked || r.key == l.key
		}
		if l.hold != notHeld && !has && len(l.requests) == 0 && !asked {
			w.breach("%s is held without a letter", l.key)
		}
		if l.hold == releasing && len(l.requests) == 0 {
			w.breach("%s waits for nobody", l.key)
		}
	}
	for _, o := range w.box {
		l := w.e.lanes.own[o.key]
		if o.held && o.life == w.life && (l == nil || l.hold == notHeld) {
			w.breach("%s is a held letter of a free key", o.name)
		}
	}
}

// checkCounts compares the counters of the engine with a recount.
func (w *world) checkCounts() {
	e := w.e
	c := count{pages: map[*Page]bool{}, batches: map[*Batch]bool{}}
	c.lane(w, e.lanes.common)
	for _, key := range w.keys() {
		if l := e.lanes.own[key]; l != nil {
			c.lane(w, l)
		}
	}
	for _, p := range e.feed.pages {
		c.page(w, p)
	}
	calls := 0
	for _, do := range w.flying {
		if do.Kind == Call || do.Kind == Park {
			calls++
		}
	}
	same := func(name string, have, want int) {
		if have != want {
			w.breach("%s is %d, and should be %d", name, have, want)
		}
	}
	same("Items", e.Counts().Items, c.items)
	same("queued", e.lanes.queued, c.queued)
	same("Bytes", e.Counts().Bytes, c.bytes)
	same("InHand", e.Counts().InHand, c.inHand)
	same("calls", e.Counts().InHand, calls)
	same("aside", e.asides.keys, c.aside)
	same("reading", e.asides.reading, c.reading)
	same("held keys", e.held.keys, c.held)
	same("held bytes", e.held.bytes, c.held) // each name has one byte
	same("batches", len(e.batches), len(c.batches)-c.inHand)
	same("lanes", len(e.lanes.own), c.lanes)
	same("asides", len(e.asides.lanes), c.asides)
	if e.asides.keys > e.rules.MaxAside && w.life == 0 {
		w.breach("%d keys are set aside", e.asides.keys)
	}
	if e.held.keys > e.rules.MaxHeld && w.life == 0 {
		w.breach("%d keys are held", e.held.keys)
	}
	if e.inHand > e.rules.Concurrency {
		w.breach("%d batches are in hand", e.inHand)
	}
}

// count is what there should be.
type count struct {
	items, queued, bytes, inHand, aside, asides, reading, held, lanes int

	pages   map[*Page]bool
	batches map[*Batch]bool
}

func (c *count) lane(w *world, l *lane) {
	e := w.e
	c.queued += len(l.waiting)
	if l != e.lanes.common {
		c.lanes++
		if l.isIdle() {
			w.breach("%s has an idle lane", l.key)
		}
	}
	if l.isFree() && (!l.listed || !slices.Contains(e.lanes.ready, l)) {
		w.breach("lane %q is ready and nobody knows", l.key)
	}
	switch l.aside.state {
	case reading:
		c.reading++
		c.aside++
	case behind:
		c.aside++
	}
	if l.aside.state != notAside {
		c.asides++
	}
	if l.hold != notHeld {
		c.held++
	}
	for _, o := range l.waiting {
		if o.state != Queued || o.lane != l {
			w.breach("%d waits in lane %q in state %d", o.LSN, l.key, o.state)
		}
		c.items++
		c.page(w, o.Page)
	}
	for i, b := range l.line {
		c.batch(w, b, l, i)
	}
}

func (c *count) batch(w *world, b *Batch, l *lane, i int) {
	inHand := b.State == Calling || b.State == Parking
	switch {
	case inHand && i > 0:
		w.breach("a batch in hand is not the first of %q", l.key)
	case b.State == Over:
		w.breach("a batch of %q is over", l.key)
	case !slices.Contains(b.lanes, l):
		w.breach("a batch does not know its lane %q", l.key)
	case !inHand && !slices.Contains(w.e.batches, b):
		w.breach("a batch of %q is forgotten", l.key)
	}
	if c.batches[b] {
		return
	}
	c.batches[b] = true
	if inHand {
		c.inHand++
	}
	if b.reserved {
		c.held++
	}
	for _, o := range b.Changes {
		if !slices.Contains(b.lanes, o.lane) {
			w.breach("%d is in a batch that is not in its lane", o.LSN)
		}
		if o.state == Batched {
			c.items++
			c.page(w, o.Page)
		}
	}
}

func (c *count) page(w *world, p *Page) {
	if c.pages[p] {
		return
	}
	c.pages[p] = true
	open, inMemory := 0, 0
	for i := range p.changes {
		if o := &p.changes[i]; !o.passed {
			open++
		}
		if !p.changes[i].IsSettled() {
			inMemory++
		}
	}
	if open != p.open || inMemory != p.inMemory {
		w.breach("a page says %d open and %d in memory, and has %d and %d", p.open, p.inMemory, open, inMemory)
	}
	c.bytes += p.bytes
}
