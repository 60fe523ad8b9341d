package engine

import "sync/atomic"

// users counts the users of the engine, because the library panics when closed
// below a reader. Counting costs each read an atomic addition.
type users struct {
	n    atomic.Int64
	last chan struct{} // the last user has left
}

// noMore is added to the count when no new user may enter: the count is then negative.
const noMore = -1 << 62

func newUsers() users { return users{last: make(chan struct{}, 1)} }

// enter reports whether the engine may be used; after true, the caller must call leave.
func (u *users) enter() bool {
	if u.n.Add(1) > 0 {
		return true
	}
	u.leave()
	return false
}

// leave ends a use. Whoever is last after end wakes it.
func (u *users) leave() {
	if u.n.Add(-1) != noMore {
		return
	}
	select {
	case u.last <- struct{}{}:
	default: // a user came too late and has left at once
	}
}

// end admits nobody any more and waits until all have left.
func (u *users) end() {
	if u.n.Add(noMore) != noMore {
		<-u.last
	}
}
