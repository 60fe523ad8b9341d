package delivery

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Breaker separates a change that cannot be handled from an outage of a system needed by handlers. The breaker
// remembers the outcomes of the last handled keys. Several goroutines may use a breaker.
//
// An outage is when at least three changes have failed, with no attempts left, and fewer keys have succeeded since the
// first of them began to fail. Several changes of one key count each, because a feed may have a single key. Then
// nothing is parked and nothing is called, but for a probe now and then. When a probe succeeds, all failures meanwhile
// begin anew.
type Breaker struct {
	backoff func(failures int) time.Duration

	// trouble is when a batch has failed last, in nanoseconds; 0 while successes do not count.
	// Every success reads trouble, without the lock: all leases of a process share the breaker, and mostly nothing
	// fails.
	trouble atomic.Int64
	good    atomic.Int64 // when the last call began that has succeeded, in nanoseconds, while successes count

	mu      sync.Mutex
	recent  []result // of different keys, in the order of their times
	open    bool
	since   time.Time
	failing int      // changes that had failed when the breaker opened
	news    []Outage // that News has not returned yet
	probes  int
	next    time.Time    // when the next probe may go
	era     int          // how many outages are over
	before  int64        // good, when the last outage began
	engines int          // that were made so far
	heirs   map[int]bool // engines of leases that came during this outage, which may have changes that failed before
	wakes   map[int]func()
	wake    int
}

type result struct {
	key string
	of  int   // number of the engine of a change that has failed
	lsn int64 // of the change that has failed
	ok  bool
	at  time.Time // when the call was begun, or has failed

	parked bool // the failure counts until the next success: an outage may have begun
}

const (
	remembered = 64              // keys
	troubled   = 5 * time.Minute // after a failure, until a success ends the counting
	outage     = 3               // changes that fail
)

// NewBreaker returns a closed breaker, which lets a probe go after each backoff.
func NewBreaker(backoff func(failures int) time.Duration) *Breaker {
	return &Breaker{backoff: backoff, wakes: map[int]func(){}, heirs: map[int]bool{}}
}

// join numbers a new engine.
func (b *Breaker) join() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.engines++
	return b.engines
}

// Watch calls wake at the end of each outage, until stop is called. wake must not wait.
func (b *Breaker) Watch(wake func()) (stop func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.wake++
	n := b.wake
	b.wakes[n] = wake
	return func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.wakes, n)
	}
}

// troubled notes the failure of a batch: from now on successes count.
func (b *Breaker) troubled(now time.Time) { b.trouble.Store(now.UnixNano()) }

// succeeded notes that a call begun at a time has handled a change of a key, if successes count.
func (b *Breaker) succeeded(key string, begun time.Time) {
	trouble := b.trouble.Load()
	if trouble == 0 {
		return
	}
	b.mu.Lock()
	b.note(result{key: key, ok: true, at: begun})
	b.mu.Unlock()
	if at := begun.UnixNano(); at > b.good.Load() { // of two at once either will do
		b.good.Store(at)
	}
	// The first success after a quiet time still counts: suspects may have waited for a success.
	if begun.UnixNano()-trouble >= int64(troubled) {
		b.trouble.CompareAndSwap(trouble, 0) // unless a batch has failed meanwhile
	}
}

// creditKeys counts changes as handled, for the breaker, by a call begun at a time: a success only shows that the
// handler's dependencies worked at that time.
func (b *Breaker) creditKeys(changes []*Change, begun time.Time) {
	for i, c := range changes {
		if i == 0 || c.Key != changes[i-1].Key {
			b.succeeded(c.Key, begun)
		}
	}
}

// failed notes that a change of a key has failed alone, with all attempts used up. The calling engine has heard the end
// of heard outages: if another outage has ended since, the failure may be of that outage, and is no sign of the next
// outage.
func (b *Breaker) failed(of, heard int, key string, lsn int64, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.era == heard {
		b.note(result{key: key, of: of, lsn: lsn, at: now})
	}
	b.troubled(now)
}

// settled notes the parking of the change of a key. The failure counts until a call begun later succeeds: an outage may
// have begun.
func (b *Breaker) settled(key string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := range b.recent {
		if b.recent[i].key == key && !b.recent[i].ok {
			b.recent[i].parked = true
		}
	}
}

// note remembers a result. The caller has the lock.
func (b *Breaker) note(r result) {
	b.recent = slices.DeleteFunc(b.recent, func(o result) bool {
		return o.key == r.key && (o.ok || r.ok || o.lsn == r.lsn) || r.ok && o.parked && o.at.Before(r.at)
	})
	// Not always at the end: a call begun before others failed may succeed after them.
	i := len(b.recent)
	for i > 0 && b.recent[i-1].at.After(r.at) {
		i--
	}
	if b.recent = slices.Insert(b.recent, i, r); len(b.recent) > remembered {
		b.recent = b.recent[1:]
	}
}

// judge reports whether to park a change which has been failing for a while: if changes of other keys were handled
// meanwhile or, when nothing else is left to try, if too few keys fail for an outage. If an outage has ended that the
// engine has not heard of, as in failed, nothing is parked: the engine first forgets the failures.
func (b *Breaker) judge(key string, heard int, failing time.Time, others bool, now time.Time) (park bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.open || b.era != heard {
		return false
	}
	good, bad := 0, 0
	// Backward, until a success older than this failure. How things were before says nothing about an outage begun
	// since.
	for _, r := range slices.Backward(b.recent) {
		if r.ok && r.at.Before(failing) { // an earlier failure is no part of this
			break
		}
		if r.ok {
			good++
		} else {
			bad++
		}
	}
	if bad >= outage && bad > good {
		b.open, b.probes, b.next = true, 1, now.Add(b.backoff(1))
		b.since, b.failing, b.before = now, bad, b.good.Load()
		b.news = append(b.news, Outage{Since: now, Changes: bad})
		return false
	}
	return good > 0 || !others
}

// admit reports whether the breaker is open, and then how long until the next probe.
func (b *Breaker) admit(now time.Time) (open bool, wait time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.open {
		return false, 0
	}
	return true, max(0, b.next.Sub(now))
}

// beginProbe permits a probe. If it is too early, because another engine has begun a probe, wait is the time until the
// next probe.
func (b *Breaker) beginProbe(now time.Time) (wait time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if wait = b.next.Sub(now); wait > 0 || !b.open {
		return max(wait, 0)
	}
	b.probes++
	b.next = now.Add(b.backoff(b.probes))
	return 0
}

// noneSince reports whether no call begun at a time or later has succeeded.
func (b *Breaker) noneSince(at time.Time) bool { return b.good.Load() < at.UnixNano() }

// goodBefore is the beginning of the last call to succeed before the last outage.
func (b *Breaker) goodBefore() time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	return time.Unix(0, b.before)
}

// IsOpen reports whether there is an outage.
func (b *Breaker) IsOpen() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.open
}

// close ends an outage.
func (b *Breaker) close(now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.open {
		b.end(now)
	}
}

// adopt notes, in an outage, that an engine has a lease whose last owner saw the outage: a part of a split lease may
// have the failed changes.
func (b *Breaker) adopt(engine int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.open {
		b.heirs[engine] = true
	}
}

// leave forgets the failures of a lease now in other hands. Then an outage without other failures is over: no call of
// this process could show the end.
func (b *Breaker) leave(of int, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.recent = slices.DeleteFunc(b.recent, func(r result) bool { return !r.ok && r.of == of })
	b.dropHeir(of, now)
}

// disown notes that an engine has none of the changes that had failed before the lease came to the engine.
func (b *Breaker) disown(engine int, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.heirs[engine] {
		b.dropHeir(engine, now)
	}
}

// dropHeir ends the outage if no change is left that could show the end. The caller has the lock.
func (b *Breaker) dropHeir(engine int, now time.Time) {
	delete(b.heirs, engine)
	if b.open && len(b.heirs) == 0 && !slices.ContainsFunc(b.recent, func(r result) bool { return !r.ok }) {
		b.end(now)
	}
}

// end ends the outage. The caller has the lock.
func (b *Breaker) end(now time.Time) {
	b.news = append(b.news, Outage{Since: b.since, Ended: now, Changes: b.failing})
	// Nothing is remembered beyond: failures of the outage would count against the first key to fail afterwards.
	b.open, b.recent = false, nil
	clear(b.heirs)
	b.era++
	for _, wake := range b.wakes {
		wake()
	}
}

// outages is how many are over.
func (b *Breaker) outages() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.era
}

// Outage is the beginning or the end of an outage.
type Outage struct {
	Since   time.Time
	Ended   time.Time // zero during the outage
	Changes int       // changes that had failed at the detection
}

// News returns the outages begun or ended since the last call of News.
func (b *Breaker) News() (news []Outage) {
	b.mu.Lock()
	defer b.mu.Unlock()
	news, b.news = b.news, nil
	return news
}

// Open is the present outage, if any.
func (b *Breaker) Open() (o Outage, open bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.open {
		o = Outage{Since: b.since, Changes: b.failing}
	}
	return o, b.open
}
