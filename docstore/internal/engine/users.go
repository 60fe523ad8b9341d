package engine

import "sync/atomic"

// users counts the users of the engine, because the library panics if it is closed during a read. Counting costs an
// atomic addition per read.
type users struct {
	n    atomic.Int64
	last chan struct{} // closed when the last user has left
}

// noMore is added to the count when no new user may enter. The count is then negative.
const noMore = -1 << 62

func newUsers() users { return users{last: make(chan struct{}, 1)} }

// enter reports whether the engine may be used. After true, the caller must call leave.
func (u *users) enter() bool {
	if u.n.Add(1) > 0 {
		return true
	}
	u.leave()
	return false
}

// leave ends a use. After end was called, the last user to leave wakes end.
func (u *users) leave() {
	if u.n.Add(-1) != noMore {
		return
	}
	select {
	case u.last <- struct{}{}:
	default: // this user came too late and has left at once
	}
}

// end admits no new users and waits until all users have left.
func (u *users) end() {
	if u.n.Add(noMore) != noMore {
		<-u.last
	}
}
