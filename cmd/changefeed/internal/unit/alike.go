package unit

import (
	"slices"

	"github.com/millrace/changefeed/internal/spelling"
)

// A mistyped name makes a unit that handles everything a second time, and nothing fails. So similar names of units on
// the same container are reported, unless the names look intended, or the user says that they are.

// findAlike finds the units with similar names; all are the units of the lease container.
func (u *Unit) findAlike(all []*Unit) {
	for _, other := range all {
		if u.IsAlike(other) {
			u.Alike = append(u.Alike, other.Processor)
		}
	}
}

// IsAlike reports whether another unit on the same container has a name that may be a misspelling of this unit's name.
func (u *Unit) IsAlike(other *Unit) bool {
	return u.Processor != "" && u.Processor != other.Processor && u.Container == other.Container &&
		spelling.IsAlike(u.Processor, other.Processor) && !u.areIntended(other.Processor)
}

// areIntended reports whether the user has named this unit and another unit as intended. A single name is not enough:
// the other name may be mistyped.
func (u *Unit) areIntended(other string) bool {
	return slices.Contains(u.intended, u.Processor) && slices.Contains(u.intended, other)
}
