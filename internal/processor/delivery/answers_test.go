package delivery

import (
	"cmp"
	"slices"
)

// answer tells the engine what became of an effect.
func (w *world) answer(do Effect, how outcome) {
	switch do.Kind {
	case Call:
		w.endCall(do.Batch, how)
	case Park:
		if how == failed {
			w.left.refuse--
			w.e.Tell(LetterRefused{Batch: do.Batch}, w.now)
			return
		}
		w.putLetter(do.Batch)
		w.e.Tell(LetterStored{Batch: do.Batch}, w.now)
	case ReadKey:
		w.readKey(do, how)
	default:
		if how == failed {
			w.left.boxFails--
			w.e.Tell(RequestFailed{Request: do.Request, Err: errHandler}, w.now)
			return
		}
		w.answerBox(do)
	}
}

// answerBox answers an effect that needs the letter box.
func (w *world) answerBox(do Effect) {
	q := do.Request
	switch do.Kind {
	case FindLetter:
		w.e.Tell(LetterFound{Request: q, Letter: w.find(q)}, w.now)
	case ListLetters:
		letters, failed := w.list(q)
		w.e.Tell(LettersListed{Request: q, Letters: letters, Failed: failed}, w.now)
	case Remove:
		w.removeLetter(q)
		w.e.Tell(LetterRemoved{Request: q}, w.now)
	case Rewrite:
		w.e.Tell(LetterRewritten{Request: q}, w.now)
	}
}

// find looks for the letter of a request: none that is held behind another one.
func (w *world) find(q *Request) *Letter {
	before := false
	for _, l := range w.box {
		switch {
		case l.key != q.Key:
		case l.name != q.Letter:
			before = true
		case l.held && before:
			return nil
		default:
			return &Letter{Of: l.name, Name: l.name, LSN: l.lsn, Size: 1}
		}
	}
	return nil
}

// list lists the held letters of a key, two at once.
func (w *world) list(q *Request) (letters []*Letter, failed bool) {
	for _, l := range w.box {
		switch {
		case l.key != q.Key:
		case !l.held:
			failed = failed || l.name != q.Letter
		case len(letters) < 2:
			letters = append(letters, &Letter{Of: l.name, Name: l.name, LSN: l.lsn, Size: 1})
		}
	}
	return letters, failed
}

// putLetter stores the letter of a batch.
func (w *world) putLetter(b *Batch) {
	c := w.truth(b.Changes[0])
	l := letter{name: letterName(c.lsn, c.place), key: c.key, lsn: c.lsn, held: b.IsHeld(), life: w.life}
	c.parked, c.finished = true, true
	w.box = slices.DeleteFunc(w.box, func(o letter) bool { return o.name == l.name })
	w.box = append(w.box, l)
	slices.SortFunc(w.box, func(a, b letter) int {
		return cmp.Or(cmp.Compare(a.lsn, b.lsn), cmp.Compare(a.name, b.name))
	})
	if !l.held && w.set.rules.HoldKeys {
		if since, held := w.held[l.key]; !held || l.lsn < since {
			w.held[l.key] = l.lsn
		}
	}
}

// removeLetter removes the letter that a request has handed over.
func (w *world) removeLetter(q *Request) {
	w.box = slices.DeleteFunc(w.box, func(o letter) bool { return o.name == q.Current.Of })
}

// endCall ends the call of a batch.
func (w *world) endCall(b *Batch, how outcome) {
	if how == cut {
		w.left.cut--
		w.e.Tell(Cut{Batch: b}, w.now)
		return
	}
	if how == fine {
		for _, c := range b.Changes {
			w.handled(b, w.truth(c))
			w.truth(c).calls++
		}
		w.noteGood(b)
		w.e.Tell(Succeeded{Batch: b, Quick: true}, w.now)
		return
	}
	f := w.failure(b, how)
	w.left.spend(how, w.isBad(b))
	left := f.Left
	if left == nil {
		left = []*Part{{Changes: places(len(b.Changes)), Err: f.Err}}
	}
	tried := make([]bool, len(b.Changes))
	open := make([]bool, len(b.Changes))
	for _, part := range left {
		for _, i := range part.Changes {
			open[i], tried[i] = true, !part.Untried
			if len(part.Changes) == 1 && !part.Untried && how != word {
				w.truth(b.Changes[i]).failedAlone = true
			}
		}
	}
	for i, c := range b.Changes {
		if t := w.truth(c); !open[i] {
			w.handled(b, t)
			w.noteGood(b)
			t.calls++
		} else if tried[i] {
			t.failedAt = w.now
			t.calls++
		}
	}
	w.e.Tell(Failed{Batch: b, Failure: f}, w.now)
}

func (w *world) noteGood(b *Batch) {
	if b.taken.After(w.good) {
		w.good = b.taken
	}
}

func places(n int) []int {
	all := make([]int, n)
	for i := range all {
		all[i] = i
	}
	return all
}

// spend counts a failure that the search has chosen.
func (b *bounds) spend(how outcome, bad bool) {
	switch {
	case how == failed && !bad:
		b.fail--
	case how == partial:
		b.partial--
	case how == items || how == each:
		b.items--
	case how == apart:
		b.apart--
	case how == late:
		b.late--
	case how == hopeless:
		b.hopeless--
	case how == word:
		b.word--
	}
}

// failure is what the handler says of a batch. If no change is poison, the last one has failed.
func (w *world) failure(b *Batch, how outcome) Failure {
	f := Failure{Err: errHandler, Late: how == late, Hopeless: how == hopeless, Outage: how == word}
	last := len(b.Changes) - 1
	bad := slices.IndexFunc(b.Changes, func(c *Change) bool { return w.truth(c).poison })
	if bad < 0 && how == items {
		bad = 0
	} else if bad < 0 {
		bad = last
	}
	switch how {
	case partial:
		if bad == 0 || bad == last && !w.truth(b.Changes[bad]).poison {
			bad = 1 // the handler says so
		}
		f.Left = []*Part{{Changes: places(last + 1)[bad:], Err: errHandler}}
	case each:
		for i := range b.Changes {
			f.Left = append(f.Left, &Part{Changes: []int{i}, Err: errHandler, Hopeless: i == 0})
		}
	case apart:
		f.Left = []*Part{
			{Changes: places(last), Err: errHandler},
			{Changes: []int{last}, Err: errHandler, Hopeless: true},
		}
	case items:
		// The one has failed, what follows of its key was not tried, and the rest is done.
		f.Left = []*Part{{Changes: []int{bad}, Err: errHandler}}
		rest := &Part{Untried: true}
		for i := bad + 1; i <= last; i++ {
			if b.Changes[i].Key == b.Changes[bad].Key {
				rest.Changes = append(rest.Changes, i)
			}
		}
		if len(rest.Changes) > 0 {
			f.Left = append(f.Left, rest)
		}
	}
	return f
}

// handled notes that the handler is done with a change.
func (w *world) handled(b *Batch, c *truth) {
	c.handled = true
	c.finished = c.finished || !b.IsRedriven() // a letter may have come before its change, after a crash
	c.done = c.done || !w.set.rules.ByHand || c.parked
}

// noteHanded notes that a batch may be confirmed from now on.
func (w *world) noteHanded(b *Batch) {
	if w.set.rules.ByHand && !b.IsRedriven() && !slices.Contains(w.handed, b) {
		w.handed = append(w.handed, b)
	}
}

// confirm has a handler confirm a batch by hand.
func (w *world) confirm(i int) {
	b := w.handed[i]
	w.handed = slices.Delete(w.handed, i, i+1)
	if _, valid := w.e.Confirm(b, w.now); !valid {
		return
	}
	last := b.Changes[len(b.Changes)-1]
	for _, c := range w.all {
		if c.handled && c.lsn <= last.LSN && (w.set.rules.Concurrency <= 1 || w.set.rules.InOrder ||
			w.hasKey(b, c.key)) {
			c.done = true
		}
	}
	for _, c := range b.Changes {
		t := w.truth(c)
		t.done, t.handled, t.finished = true, true, true
	}
}

func (w *world) hasKey(b *Batch, key string) bool {
	return slices.ContainsFunc(b.Changes, func(c *Change) bool { return c.Key == key })
}

// mostOfKey is how many changes a read by key gives at once.
const mostOfKey = 2

// readKey reads a page of a key.
func (w *world) readKey(do Effect, how outcome) {
	head := w.all[len(w.all)-1].lsn
	switch how {
	case failed:
		w.left.keyFails--
		w.e.Tell(KeyFailed{Key: do.Key}, w.now)
		return
	case lags: // it shows nothing after what was asked for
		w.left.keyLags--
		w.e.Tell(KeyRead{Key: do.Key, Next: do.From, Head: max(do.From.(int64), 1), Changes: 0}, w.now)
		return
	}
	var page []*truth
	next := head
	for _, c := range w.all {
		if c.key != do.Key || c.hidden || c.lsn <= do.From.(int64) {
			continue
		}
		if len(page) >= mostOfKey && page[len(page)-1].lsn != c.lsn {
			next = page[len(page)-1].lsn
			break
		}
		page = append(page, c)
	}
	w.e.Tell(KeyRead{Key: do.Key, Next: next, Head: head, Changes: len(page), Meta: metaOf(page)}, w.now)
}

// answered notes the outcome of a request.
func (w *world) answered(q *Request) {
	w.records = slices.DeleteFunc(w.records, func(r record) bool { return r.token == q.Token })
	if q.Result != HandledAgain {
		return
	}
	others := slices.ContainsFunc(w.box, func(l letter) bool { return l.key == q.Key && !l.held && l.name != q.Letter })
	if q.Letter == "" || !others {
		delete(w.held, q.Key)
	}
}
