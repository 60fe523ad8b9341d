package lanes

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Breaker separates a change that cannot be handled from an outage of what handlers need. It remembers of the keys
// that were handled last how that came out. It may be used by several goroutines.
//
// It is an outage when at least three keys have failed, with nothing left to try, and more than have succeeded since
// the first of them began to fail. Then nothing is parked and nothing is called, but for a probe now and then. When
// a probe succeeds, all that failed meanwhile begins anew.
type Breaker struct {
	backoff func(failures int) time.Duration

	// trouble is when a batch has failed last, in nanoseconds; 0 while successes do not count.
	// Every success reads it, without the lock: all leases of a process share the breaker, and
	// mostly nothing fails.
	trouble atomic.Int64

	mu     sync.Mutex
	recent []result // of different keys, the last one at the end
	open   bool
	unsaid int // keys that had failed when it opened, until Opened says so
	probes int
	next   time.Time // when the next probe may go
	era    int       // how many outages are over
	wakes  map[int]func()
	wake   int
}

type result struct {
	key string
	ok  bool
	at  time.Time // when the call was begun, or has failed

	alone bool // it was parked because nothing else was left to try
}

const (
	remembered = 64              // keys
	troubled   = 5 * time.Minute // after a failure, until a success ends the counting
	outage     = 3               // keys that fail
)

// NewBreaker returns a closed breaker, which lets a probe go after each backoff.
func NewBreaker(backoff func(failures int) time.Duration) *Breaker {
	return &Breaker{backoff: backoff, wakes: map[int]func(){}}
}

// Watch has wake called when an outage is over, until stop is called. It must not wait.
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

// troubled notes that a batch has failed: from now on successes count.
func (b *Breaker) troubled(now time.Time) { b.trouble.Store(now.UnixNano()) }

// succeeded notes that a change of a key was handled by a call that was begun at a time, if successes count.
func (b *Breaker) succeeded(key string, begun time.Time) {
	trouble := b.trouble.Load()
	if trouble == 0 {
		return
	}
	b.note(result{key: key, ok: true, at: begun})
	// The first success after a quiet time counts still: suspects may have waited for it.
	if begun.UnixNano()-trouble >= int64(troubled) {
		b.trouble.CompareAndSwap(trouble, 0) // unless a batch has failed meanwhile
	}
}

// failed notes that a change of a key has failed by itself, as often as it may.
func (b *Breaker) failed(key string, now time.Time) {
	b.note(result{key: key, at: now})
	b.troubled(now)
}

// settled forgets the failure of a key that was parked because others were handled meanwhile. The failure of one that was
// parked because nothing else was left to try counts on: it may be the first of an outage.
func (b *Breaker) settled(key string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.recent = slices.DeleteFunc(b.recent, func(r result) bool { return r.key == key && !r.ok && !r.alone })
}

func (b *Breaker) note(r result) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.recent = slices.DeleteFunc(b.recent, func(o result) bool { return o.key == r.key })
	if b.recent = append(b.recent, r); len(b.recent) > remembered {
		b.recent = b.recent[1:]
	}
}

// judge reports whether a change is to be parked that has been failing for a while: if changes of other keys were handled
// meanwhile or, when nothing else is left to try, if too few keys fail for an outage.
func (b *Breaker) judge(key string, failing time.Time, others bool, now time.Time) (park bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.open {
		return false
	}
	good, bad := 0, 0
	// Backward, until a success that is older than this failure. How things were before
	// says nothing about an outage that began since.
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
		b.unsaid = bad
		return false
	}
	// It is parked because waiting would not show more. If it was the first of an
	// outage after all, its failure must still count when the next key fails.
	if good == 0 && !others {
		for i := range b.recent {
			b.recent[i].alone = b.recent[i].alone || b.recent[i].key == key
		}
	}
	return good > 0 || !others
}

// admit reports whether the breaker is open, and then how long until the next probe. Without a wait this is it.
func (b *Breaker) admit(now time.Time) (open bool, wait time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.open {
		return false, 0
	}
	if wait = b.next.Sub(now); wait > 0 {
		return true, wait
	}
	b.probes++
	b.next = now.Add(b.backoff(b.probes))
	return true, 0
}

// IsOpen reports whether there is an outage.
func (b *Breaker) IsOpen() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.open
}

// close ends an outage.
func (b *Breaker) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.open {
		return
	}
	// Nothing is remembered beyond: failures of the outage would count against the
	// first key that fails afterwards.
	b.open, b.recent = false, nil
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

// Opened reports once that an outage has begun, and how many keys had failed.
func (b *Breaker) Opened() (failed int, opened bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	failed, b.unsaid = b.unsaid, 0
	return failed, failed > 0
}
