package peer

import "time"

const (
	filterName = "com.microsoft:session-filter"

	patience = 65 * time.Second // how long a receiver waits for a session, unless the client says otherwise
)

// waiting is a receiver without a session. It waits until there is a free session or the time has passed.
type waiting struct {
	*link
	attach frame
	until  time.Time
	timer  *time.Timer
}

// waitsFor returns how long a receiver waits for a free session.
func waitsFor(attach frame) time.Duration {
	if properties, ok := attach.fieldAt(13).(dict); ok {
		if ms, ok := properties.valueOf("com.microsoft:timeout"); ok {
			return time.Duration(list{ms}.uint32At(0)) * time.Millisecond
		}
	}
	return patience
}

// answerReceiver answers a receiver, or makes it wait.
func (s *session) answerReceiver(w *waiting) (answered bool) {
	l, f := w.link, w.attach
	_, source := fields(f.fieldAt(5))
	answer := list{l.name, l.handle, false, f.fieldAt(3), f.fieldAt(4), f.fieldAt(5), f.fieldAt(6), nil, nil}
	condition := ""
	if filter, ok := source.fieldAt(7).(dict); ok && !l.isService() {
		var isAny bool
		condition, isAny = s.lockRequested(l, source, filter)
		if condition != "" && isAny && time.Now().Before(w.until) {
			if w.timer == nil {
				w.timer = time.AfterFunc(time.Until(w.until), s.wake)
				s.waiting = append(s.waiting, w)
			}
			return false
		}
		answer[5] = described{uint64(sourceNumber), source}
	}
	if condition != "" {
		answer[5] = nil
	}
	locked := dict{symbol("com.microsoft:locked-until-utc"), int64(ticks1970 + lockedUntil()*10_000)}
	s.writeFrame(performAttach, append(answer, uint32(0), nil, nil, nil, locked), nil)
	if condition != "" {
		delete(s.links, l.handle)
		s.writeFrame(performDetach, list{l.handle, true, problem(condition)}, nil)
	}
	return true
}

// lockRequested locks the requested session, and names the session in the source. Clients name a session as a plain or
// as a described value, and expect the answer in the same form; null is any session.
func (s *session) lockRequested(l *link, source list, filter dict) (condition string, isAny bool) {
	id, ok := filter.valueOf(filterName)
	if !ok {
		return "", false
	}
	d, isDescribed := id.(described)
	if isDescribed {
		id = d.value
	}
	group, ok := s.broker.lockSession(l.address, s.conn, list{id}.textAt(0), id == nil)
	if !ok {
		return conditionTimeout, id == nil
	}
	l.group, l.hasGroup = group, true
	var named any = l.group
	if isDescribed {
		named = described{d.descriptor, l.group}
	}
	source[7] = dict{symbol(filterName), named}
	return "", false
}
