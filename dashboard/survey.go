package dashboard

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/millrace/changefeed/admin"
	"github.com/millrace/changefeed/internal/spelling"
)

// A separate goroutine lists units for all callers of the same time: no caller waits for longer than its context
// allows, and a caller that leaves takes nothing from the others.

// survey is a listing of all units that is under way, or over.
type survey struct {
	done   chan struct{}
	status *Status // once done is closed
}

// survey returns a survey that is under way, or a survey younger than the interval. The survey goes on when ctx has
// ended.
func (d *Dashboard) survey(ctx context.Context) *survey {
	d.mu.Lock()
	defer d.mu.Unlock()
	s := d.last
	if s == nil || s.status != nil && time.Since(s.status.taken) >= d.o.Interval {
		s = &survey{done: make(chan struct{})}
		d.last = s
		go d.runSurvey(context.WithoutCancel(ctx), s, slices.Clone(d.units))
	}
	return s
}

// runSurvey lists units and those that are found.
func (d *Dashboard) runSurvey(ctx context.Context, s *survey, own []*shown) {
	made := &Status{
		Version: statusVersion, At: time.Now().UTC(), Name: d.o.Name, Program: d.o.Version, taken: time.Now(),
		Write: d.o.Write, Store: d.o.Explorer != nil,
	}
	units := withFound(own, d.findUnits(ctx))
	d.mu.Lock()
	made.Error = textOf(d.findError)
	d.mu.Unlock()
	listings := make([]*listing, len(units))
	for i, u := range units {
		listings[i] = u.listUnit(ctx)
	}
	late, end := context.WithTimeout(ctx, surveyTimeout+patience)
	defer end()
	made.Units = make([]UnitStatus, len(units))
	for i, u := range units {
		made.Units[i] = u.unknownStatus(errNotListed)
		select {
		case <-listings[i].done:
		case <-late.Done():
		}
		if listings[i].isOver() {
			made.Units[i] = listings[i].status
		}
	}
	addAlike(made.Units)
	made.Health = d.healthNow()
	made.json = jsonOf(made)
	d.mu.Lock()
	s.status = made
	d.mu.Unlock()
	close(s.done)
}

// addAlike warns of units with similar names on the same container: a mistyped name makes a unit that handles
// everything a second time, and nothing fails.
func addAlike(units []UnitStatus) {
	for i := range units {
		u := &units[i]
		for _, other := range units {
			if other.Container != u.Container || !spelling.IsAlike(u.Name, other.Name) {
				continue
			}
			u.Finds = append(slices.Clone(u.Finds), Finding{
				Word: "alike", Grade: gradeOf(admin.GradeWarning),
				Text:  "unit " + other.Name + " on the same container has a similar name, and each of the two handles every change",
				Means: "units on one container have similar names",
				Next:  "if one of the names is mistyped, end its instances, and delete its leases with changefeed leases delete",
			})
		}
	}
}

// errNotListed is why a unit is unknown if the store does not answer in time.
var errNotListed = errors.New("the unit was not listed in time")

// listing is a listing of a unit that is under way, or over.
type listing struct {
	began  time.Time
	done   chan struct{}
	status UnitStatus // once done is closed
}

// isOver reports whether the listing is over.
func (l *listing) isOver() bool {
	select {
	case <-l.done:
		return true
	default:
		return false
	}
}

// listUnit lists a unit, or returns the listing that is under way. A store may not obey the context: then the unit is
// unknown until the store has answered.
func (s *shown) listUnit(ctx context.Context) *listing {
	s.mu.Lock()
	defer s.mu.Unlock()
	if l := s.going; l != nil {
		if time.Since(l.began) <= surveyTimeout {
			return l
		}
		l = &listing{done: make(chan struct{}), status: s.unknownStatus(errNotListed)}
		close(l.done)
		return l
	}
	l := &listing{began: time.Now(), done: make(chan struct{})}
	s.going = l
	go func() {
		l.status = s.tryStatus(ctx)
		s.mu.Lock()
		s.going, s.isUnknown = nil, l.status.Error != nil
		s.mu.Unlock()
		close(l.done)
	}()
	return l
}

// tryStatus is the state of a unit. A panic of the store is an error.
func (s *shown) tryStatus(ctx context.Context) (u UnitStatus) {
	ctx, cancel := context.WithTimeoutCause(ctx, surveyTimeout, errNotListed)
	defer cancel()
	defer func() {
		if why := recover(); why != nil {
			u = s.unknownStatus(fmt.Errorf("the listing panicked: %v", why))
		}
	}()
	return s.statusNow(ctx)
}

// wasUnknown reports whether the last listing of the unit has failed.
func (s *shown) wasUnknown() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.isUnknown
}

// patience is how long after a timeout an answer may come.
const patience = time.Second

// findEvery is how often units are found.
const findEvery = 10 * time.Second

// findUnits returns the units that Options.Find has found.
func (d *Dashboard) findUnits(ctx context.Context) []*shown {
	d.mu.Lock()
	isDue := d.o.Find != nil && !d.isFinding && time.Since(d.foundAt) >= findEvery
	if isDue {
		d.isFinding, d.foundAt = true, time.Now()
	}
	d.mu.Unlock()
	if isDue {
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			d.refreshUnits(ctx)
		}()
		select {
		case <-ended:
		case <-time.After(surveyTimeout + patience):
			d.mu.Lock()
			d.findError = errors.New("the units were not found in time")
			d.mu.Unlock()
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.found)
}

// refreshUnits finds units. A unit that was found before stays the same, so that the pace is known, unless the unit
// could not be listed: the container may be another container of the same name.
func (d *Dashboard) refreshUnits(ctx context.Context) {
	units, err := d.callFind(ctx)
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.isFinding, d.findError = false, err; err != nil {
		return
	}
	var found []*shown
	for _, u := range units {
		made := d.newShown(u)
		if indexOf(found, made) >= 0 {
			continue
		}
		if i := indexOf(d.found, made); i >= 0 && !d.found[i].wasUnknown() {
			made.admin, made.lister = d.found[i].admin, d.found[i].lister
		}
		found = append(found, made)
	}
	d.found = found
}

// callFind calls Options.Find. A panic is an error.
func (d *Dashboard) callFind(ctx context.Context) (units []Unit, err error) {
	ctx, cancel := context.WithTimeout(ctx, surveyTimeout)
	defer cancel()
	defer func() {
		if why := recover(); why != nil {
			err = fmt.Errorf("the search panicked: %v", why)
		}
	}()
	return d.o.Find(ctx)
}

// withFound returns units and those that were found, each once, by their names.
func withFound(own, found []*shown) []*shown {
	all := slices.Clone(own)
	for _, s := range found {
		if indexOf(own, s) < 0 {
			all = append(all, s)
		}
	}
	slices.SortFunc(all, byName)
	return all
}

// indexOf is the index of the unit with the name of another unit; -1 if there is none.
func indexOf(all []*shown, other *shown) int {
	return slices.IndexFunc(all, func(s *shown) bool { return s.name() == other.name() })
}
