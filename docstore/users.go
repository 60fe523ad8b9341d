package docstore

import "sync/atomic"

// users counts those who are using the engine, which must not be closed below them: it
// answers with a panic then.
type users struct {
	n    atomic.Int64
	last chan struct{} // the last one has left
}

// noMore is added to the count when nobody may enter any more.
const noMore = -1 << 62

func newUsers() users { return users{last: make(chan struct{}, 1)} }

// enter reports whether the engine may be used; whoever may calls leave at the end.
func (u *users) enter() bool {
	if u.n.Add(1) > 0 {
		return true
	}
	u.leave()
	return false
}

func (u *users) leave() {
	if u.n.Add(-1) != noMore {
		return
	}
	select {
	case u.last <- struct{}{}:
	default: // somebody came too late, and has left at once
	}
}

// end lets nobody enter any more and waits until all have left.
func (u *users) end() {
	if u.n.Add(noMore) != noMore {
		<-u.last
	}
}
