package delivery

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
)

// A world is everything around one engine: a source, a handler, a letter box, a store with the lease, and time. It
// moves by one action at a time, and the search chooses the actions.

// setting describes a world. Its bounds say how often each trouble may happen.
type setting struct {
	name   string
	pages  string // of the feed: "1a 2b | 3a 3a": changes with an LSN and a key; two with one LSN are a transaction
	hidden string // LSNs that a read by key does not show, because a later version has taken their place
	poison string // LSNs of changes that the handler cannot handle
	rules  Rules
	width  int  // how many keys a batch may have with concurrency; 0 is one
	shared bool // another kind of processor may take the lease
	lazy   bool // events may come between two effects
	bounds bounds
	long   bounds // more of each, with -search.long
}

// bounds is how often something may happen.
type bounds struct {
	fail, partial, items, apart, late, hopeless, word int // how a call ends
	cut, refuse, crash, clean, stop                   int
	retry, release, withdraw, boxFails                int
	outage, keyFails, keyLags, room, byHand           int
	skip, replay                                      int
}

// truth is what really happened to a change.
type truth struct {
	lsn         int64
	place       int
	key         string
	hidden      bool
	poison      bool
	calls       int  // how often the handler received it, and returned
	handled     bool // by the handler
	done        bool // handled and, if that is by hand, confirmed
	parked      bool // its letter was stored
	skipped     bool // an operator has had it skipped
	failedAlone bool // by a verdict about this change alone
	blamed      int  // crashes with nothing else in the handler
	finished    bool // in this life of the engine
	noted       bool // the lease said at the begin of this life that it is settled
	forgotten   bool // its calls are not known any more
	failedAt    time.Time
}

type letter struct {
	name string
	key  string
	lsn  int64
	held bool
	life int
	old  bool // its key was replayed since
}

// record is a request as the lease store has it.
type record struct {
	token, key, letter string
	asked              bool // in this life
}

type storedLease struct {
	at    int64
	notes Notes
}

type world struct {
	set    *setting
	left   bounds
	now    time.Time
	e      *Engine
	wait   time.Duration // as Next said; -1 if something has happened since
	flying []Effect      // that are not answered
	ends   []int64       // of the pages
	all    []*truth      // in the order of the feed

	lease   storedLease
	box     []letter
	records []record
	asked   int // requests so far
	held    map[string]int64
	handed  []*Batch // that may be confirmed
	outage  bool
	life    int
	crashes int
	fair    bool
	last    Effect    // answered by the last event
	called  *truth    // the only change of the last call, if nothing else was in the handler
	amend   func()    // what an operator does with the lease before the next engine begins
	good    time.Time // when the last call began that has succeeded
	born    time.Time // when this life began
	broken  string

	replayed bool // a key was, so its changes come behind newer ones of other keys
}

var start = time.Unix(1_000_000, 0)

func second(int) time.Duration { return time.Second }

func letterName(lsn int64, place int) string { return fmt.Sprintf("%d.%d", lsn, place) }

func newWorld(s *setting, long bool) *world {
	w := &world{set: s, left: s.bounds, now: start, wait: -1, held: map[string]int64{}}
	if long {
		w.left = s.long
	}
	for page := range strings.SplitSeq(s.pages, "|") {
		for text := range strings.FieldsSeq(page) {
			c := &truth{}
			if _, err := fmt.Sscanf(text, "%d%s", &c.lsn, &c.key); err != nil {
				panic(err)
			}
			if n := len(w.all); n > 0 && w.all[n-1].lsn == c.lsn {
				c.place = w.all[n-1].place + 1
			}
			c.hidden = slices.Contains(strings.Fields(s.hidden), fmt.Sprint(c.lsn))
			c.poison = slices.Contains(strings.Fields(s.poison), fmt.Sprint(c.lsn))
			w.all = append(w.all, c)
		}
		w.ends = append(w.ends, w.all[len(w.all)-1].lsn)
	}
	w.begin()
	return w
}

// begin starts an engine from the lease.
func (w *world) begin() {
	r := w.set.rules
	r.Backoff = second
	r.Name = func(c *Change) string { return letterName(c.LSN, c.Place) }
	r.ID = r.Name
	r.HeldBytes = func(key string) int { return len(key) }
	r.MaxHeldBytes = 100
	if r.MaxHeld == 0 {
		r.MaxHeld = 10
	}
	if r.KeyPages == 0 {
		r.KeyPages = 1
	}
	w.e = New(r, NewBreaker(second))
	w.e.width.lanes, w.e.width.rest = max(w.set.width, 1), math.MaxInt
	w.e.Share(w.set.shared)
	w.e.Begin(w.lease.at)
	w.born = w.now
	w.flying, w.handed, w.wait, w.last, w.called = nil, nil, -1, Effect{}, nil
	for _, c := range w.all {
		c.noted = w.lease.says(c)
		c.finished = c.noted || c.skipped
	}
	for i := range w.records {
		w.records[i].asked = false
	}
	clear(w.held)
	for _, h := range w.lease.notes.Held {
		w.held[h.Key] = h.Since
	}
}

// says reports whether the lease says that a change is settled. All of a key that is set aside is settled before its
// LSN.
func (l *storedLease) says(c *truth) bool {
	for _, k := range l.notes.Aside {
		if k.Key == c.key {
			return c.lsn < k.LSN
		}
	}
	return c.lsn <= l.at || c.lsn <= l.notes.Through && !slices.Contains(l.notes.Open, c.lsn)
}

// action is one step of a world.
type action struct {
	kind deed
	at   int8 // which effect, request, letter or batch
	how  outcome
}

type deed uint8

const (
	next deed = iota // ask the engine what to do
	readPage
	answer // an effect
	pass   // time passes
	store  // the lease
	crash
	stop     // in good order
	ask      // a request that is recorded
	retryIt  // record a retry of a letter
	freeIt   // record a release of a key
	withdraw // a request
	confirm  // a batch
	beginOutage
	endOutage
	makeRoom
	skipIt   // a change, by an operator
	replayIt // a key, by an operator
)

var deeds = []string{
	"next", "readPage", "answer", "pass", "store", "crash", "stop", "ask", "retry", "release",
	"withdraw", "confirm", "outage", "outage over", "makeRoom", "skip", "replay",
}

type outcome uint8

const (
	fine outcome = iota
	failed
	partial // what is before the first bad change is done
	items   // the bad changes have failed, the rest is done or was not tried
	each    // every change has failed by itself
	apart   // the last change has failed for good by itself, and the others together
	late
	hopeless
	word // the handler says that it is an outage
	cut
	lags
)

var outcomes = []string{
	"", "failed", "partial", "items", "each", "apart", "late", "hopeless", "says outage", "cut",
	"lags",
}

func (a action) String() string {
	return fmt.Sprintf("%s %d %s", deeds[a.kind], a.at, outcomes[a.how])
}

// actions are the steps that are possible now.
func (w *world) actions() []action {
	var all []action
	may := func(possible bool, kind deed, at int, how outcome) {
		if possible {
			all = append(all, action{kind, int8(at), how})
		}
	}
	may(w.left.stop > 0 && len(w.flying) == 0, stop, 0, fine)
	if w.wait < 0 {
		may(true, next, 0, fine)
		if !w.set.lazy {
			return all
		}
	}
	left := &w.left
	may(w.hasPage(), readPage, 0, fine)
	for i, do := range w.flying {
		for _, how := range w.answers(do) {
			may(true, answer, i, how)
		}
	}
	may(w.wait > 0 && w.wait < Never, pass, 0, fine)
	may(w.left.crash+w.left.clean > 0 && !w.isStored(), store, 0, fine)
	for i, q := range w.records {
		may(!q.asked, ask, i, fine)
		may(q.asked && left.withdraw > 0, withdraw, i, fine)
	}
	for i := range w.box {
		may(left.retry > 0, retryIt, i, fine)
	}
	for i, key := range w.keys() {
		_, held := w.held[key]
		may(held && left.release > 0, freeIt, i, fine)
	}
	for i := range w.handed {
		may(left.byHand > 0, confirm, i, fine)
	}
	may(left.outage > 0 && !w.outage, beginOutage, 0, fine)
	may(w.outage, endOutage, 0, fine)
	may(left.room > 0 && w.hasStuck(), makeRoom, 0, fine)
	if left.crash > 0 {
		may(true, crash, 0, fine)
		may(w.hasWrites(), crash, 1, fine)
	}
	may(left.clean > 0 && w.isStored(), crash, 2, fine)
	w.steerings(may)
	return all
}

func (w *world) hasPage() bool { return w.e.ReadFrom().(int64) < w.ends[len(w.ends)-1] }

// hasWrites reports whether a letter is being written, so that it may be there after a crash.
func (w *world) hasWrites() bool {
	return slices.ContainsFunc(w.flying, func(do Effect) bool { return do.Kind == Park || do.Kind == Remove })
}

func (w *world) hasStuck() bool {
	for _, l := range w.e.lanes.own {
		if len(l.waiting) > 0 && l.isStuck(w.now) {
			return true
		}
	}
	return false
}

func (w *world) keys() []string {
	var keys []string
	for _, c := range w.all {
		if !slices.Contains(keys, c.key) {
			keys = append(keys, c.key)
		}
	}
	return keys
}

// answers are the ways in which an effect may end.
func (w *world) answers(do Effect) (hows []outcome) {
	left := &w.left
	switch do.Kind {
	case Call:
		return w.verdicts(do.Batch)
	case Park:
		hows = append(hows, fine)
		if left.refuse > 0 {
			hows = append(hows, failed)
		}
	case ReadKey:
		hows = append(hows, fine)
		if left.keyFails > 0 {
			hows = append(hows, failed)
		}
		if left.keyLags > 0 {
			hows = append(hows, lags)
		}
	default:
		hows = append(hows, fine)
		if left.boxFails > 0 {
			hows = append(hows, failed)
		}
	}
	return hows
}

// verdicts are the ways in which the call of a batch may end.
func (w *world) verdicts(b *Batch) (hows []outcome) {
	left := &w.left
	bad := w.isBad(b)
	may := func(possible bool, how outcome) {
		if possible {
			hows = append(hows, how)
		}
	}
	several := len(b.Changes) > 1 && !w.outage
	may(!bad, fine)
	may(bad || left.fail > 0, failed)
	may(several && left.partial > 0, partial)
	may(several && left.items > 0, items)
	may(several && left.items > 0, each)
	may(several && left.apart > 0, apart)
	may(left.late > 0, late)
	may(left.hopeless > 0, hopeless)
	may(left.word > 0, word)
	may(left.cut > 0, cut)
	return hows
}

func (w *world) isBad(b *Batch) bool {
	return !w.fair && (w.outage || slices.ContainsFunc(b.Changes, func(c *Change) bool { return w.truth(c).poison }))
}

// truth finds a change.
func (w *world) truth(c *Change) *truth {
	if name, is := c.Page.Of.(string); is { // of a letter
		return w.named(name)
	}
	return w.named(letterName(c.LSN, c.Place))
}

// named finds the change of a letter.
func (w *world) named(letter string) *truth {
	i := slices.IndexFunc(w.all, func(t *truth) bool { return letterName(t.lsn, t.place) == letter })
	return w.all[i]
}

// do takes a step.
func (w *world) do(a action) {
	wait := w.wait
	w.wait = -1
	w.now = w.now.Add(time.Microsecond)
	switch a.kind {
	case next:
		w.next()
		return
	case readPage:
		w.readPage()
	case answer:
		do := w.flying[a.at]
		w.flying = slices.Delete(w.flying, int(a.at), int(a.at)+1)
		w.answer(do, a.how)
		w.last = do
		return
	case pass:
		w.now = w.now.Add(wait)
	case store:
		w.store()
	case crash:
		w.crash(int(a.at))
	case stop:
		w.stop()
	case skipIt, replayIt:
		w.steer(a)
	case ask:
		w.ask(&w.records[a.at])
	case retryIt:
		w.left.retry--
		l := w.box[a.at]
		w.record(l.key, l.name)
	case freeIt:
		w.left.release--
		w.record(w.keys()[a.at], "")
	case withdraw:
		w.left.withdraw--
		w.e.Tell(RequestWithdrawn{Key: w.records[a.at].key, Token: w.records[a.at].token}, w.now)
	case confirm:
		w.left.byHand--
		w.confirm(int(a.at))
	case beginOutage:
		w.left.outage--
		w.outage = true
	case endOutage:
		w.outage = false
	case makeRoom:
		w.left.room--
		w.e.MakeRoom(0, 0, w.now)
	}
	w.last = Effect{}
}

// mostEffects is how many effects an event may have.
const mostEffects = 40

// next does what the engine says: all of it, or one effect in a lazy world.
func (w *world) next() {
	for range mostEffects {
		do, wait := w.e.Next(w.now)
		if do.Kind == Nothing {
			if w.wait = wait; wait <= 0 {
				w.breach("nothing to do, and a wait of %v", wait)
			}
			return
		}
		if w.start(do); w.set.lazy || w.broken != "" {
			return
		}
	}
	w.breach("more than %d effects", mostEffects)
}

// breach notes the first promise that is broken.
func (w *world) breach(format string, args ...any) {
	if w.broken == "" {
		w.broken = fmt.Sprintf(format, args...)
	}
}

// start begins with an effect.
func (w *world) start(do Effect) {
	w.checkRepeat(do)
	switch do.Kind {
	case Call:
		if do.Note {
			w.store()
		}
		w.checkCall(do.Batch)
		w.noteHanded(do.Batch)
	case Park:
		w.checkPark(do.Batch)
	case ReadKey:
		w.checkReadKey(do)
	case FindLetter, ListLetters, Remove, Rewrite:
	case Answer:
		if do.Note {
			w.store()
		}
		w.answered(do.Request)
		return
	case Shed, TooManyHeld:
		return
	case Nothing:
	}
	w.flying = append(w.flying, do)
}

func (w *world) readPage() {
	from := w.e.ReadFrom().(int64)
	var page []*truth
	end := int64(0)
	for _, end = range w.ends {
		if end > from {
			break
		}
	}
	for _, c := range w.all {
		if from < c.lsn && c.lsn <= end {
			page = append(page, c)
		}
	}
	w.e.Tell(PageRead{Next: end, Changes: len(page), Meta: metaOf(page)}, w.now)
}

func metaOf(page []*truth) func(int) Meta {
	return func(i int) Meta { return Meta{page[i].lsn, page[i].key, 1 + i} }
}

func (w *world) isStored() bool {
	at, n := w.leaseNow()
	return w.lease.at == at && fmt.Sprint(w.lease.notes) == fmt.Sprint(n)
}

// leaseNow is what the lease is to say.
func (w *world) leaseNow() (int64, Notes) {
	f := &w.e.feed
	before, lsn := f.at, f.atLSN
	at := w.e.Position().(int64)
	n := w.e.Notes()
	f.at, f.atLSN = before, lsn // to look must change nothing
	if n.Suspect != nil {
		s := *n.Suspect
		n.Suspect = &s
	}
	n.Open, n.Tried = slices.Clone(n.Open), slices.Clone(n.Tried)
	return at, n
}

func (w *world) store() {
	unsaved := w.e.Counts().Unsaved
	_, n := w.leaseNow()
	w.lease = storedLease{at: w.e.Position().(int64), notes: n}
	w.e.Tell(LeaseStored{Changes: unsaved}, w.now)
}

// crash ends the engine, and begins the next one. What was being written may be there: 1 is that it is. 2 is the end of
// an owner who gave the lease away.
func (w *world) crash(how int) {
	flying := w.flying
	inherit := how != 2
	if how == 2 {
		w.left.clean--
	} else {
		w.left.crash--
		w.crashes++
	}
	for _, do := range flying {
		switch {
		case do.Kind == Call:
			for _, c := range do.Batch.Changes {
				w.truth(c).calls++
			}
		case do.Kind == Park && how == 1:
			w.putLetter(do.Batch)
		case do.Kind == Remove && how == 1:
			w.removeLetter(do.Request)
		}
	}
	if w.called != nil && inherit {
		w.called.blamed++
	}
	suspect := w.lease.notes.Suspect
	w.beginNext()
	w.e.Restore(w.lease.notes, w.now)
	if inherit {
		w.e.Tell(OwnerCrashed{Suspect: suspect}, w.now)
	}
}

// stop ends the engine in good order, when nothing is in hand, and begins the next one. What the handler is done with
// does not come again.
func (w *world) stop() {
	w.left.stop--
	for {
		do, found := w.e.Conclusion()
		if !found {
			break
		}
		if do.Kind == Answer {
			w.start(do)
		} else {
			w.answer(do, fine)
		}
	}
	for _, l := range w.box {
		if w.named(l.name).handled && !l.old && w.crashes == 0 {
			w.breach("the letter %s is left, though the handler is done with it", l.name)
		}
	}
	w.store()
	w.beginNext()
	w.e.Restore(w.lease.notes, w.now)
}

// beginNext begins the next life, after what an operator does with the lease.
func (w *world) beginNext() {
	if w.amend != nil {
		w.amend()
		w.amend = nil
	}
	w.life++
	w.begin()
}

// record stores a request.
func (w *world) record(key, name string) {
	w.asked++
	w.records = append(w.records, record{token: fmt.Sprint(w.asked), key: key, letter: name})
}

func (w *world) ask(q *record) {
	q.asked = true
	w.e.Tell(RequestMade{Request: &Request{Token: q.token, Key: q.key, Letter: q.letter}}, w.now)
}

var errHandler = errors.New("the handler has failed")
