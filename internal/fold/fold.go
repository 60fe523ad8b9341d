// Package fold keeps a log of errors short: of those that are alike it admits one a minute,
// and few in all, and counts the others.
package fold

import (
	"maps"
	"strings"
	"sync"
	"time"
)

const (
	period = time.Minute
	most   = 20        // lines in a period
	kept   = time.Hour // how long a kind is remembered
)

// Fold decides which errors are written. Its zero value has admitted none.
type Fold struct {
	mu        sync.Mutex
	kinds     map[string]*kind
	lines     [most]time.Time // when the newest lines were written, in turn
	next      int             // of lines to be used: the oldest
	unwritten int             // errors for which there was no room
}

// kind is a kind of error that was written.
type kind struct {
	at       time.Time
	repeated int             // since then
	subjects map[string]bool // that it was repeated for
}

// Counts are errors that were not written before the one that is.
type Counts struct {
	Repeated int // of the same kind,
	Subjects int // about so many subjects
	NoRoom   int // of any kind, for which there was no room
}

// Attrs are the counts as attributes of the line, with a name for the subjects; none if all was written.
func (c Counts) Attrs(subjects string) (attrs []any) {
	if c.Repeated > 0 {
		attrs = append(attrs, "repeated", c.Repeated, subjects, c.Subjects)
	}
	if c.NoRoom > 0 {
		attrs = append(attrs, "unwritten", c.NoRoom)
	}
	return attrs
}

// Admit decides whether an error of a kind, about a subject, is written now.
func (f *Fold) Admit(name, subject string, now time.Time) (c Counts, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	old := f.kinds[name]
	if old != nil && now.Sub(old.at) < period {
		old.repeated++
		old.subjects[subject] = true
		return c, false
	}
	// The oldest of the last lines: if it is younger than a period, the period is full.
	if now.Sub(f.lines[f.next]) < period {
		f.unwritten++
		return c, false
	}
	if old != nil {
		c.Repeated, c.Subjects = old.repeated, len(old.subjects)
	}
	c.NoRoom = f.unwritten
	if f.kinds == nil {
		f.kinds = map[string]*kind{}
	}
	// At each line that is written, which is seldom. Kinds that do not come again would
	// be kept for ever.
	maps.DeleteFunc(f.kinds, func(_ string, k *kind) bool { return now.Sub(k.at) >= kept })
	f.kinds[name] = &kind{at: now, subjects: map[string]bool{}}
	f.lines[f.next], f.unwritten = now, 0
	f.next = (f.next + 1) % most
	return c, true
}

// Root is the innermost cause of an error; of several it is the first.
func Root(err error) error {
	for {
		switch e := err.(type) {
		case interface{ Unwrap() error }:
			if e.Unwrap() == nil {
				return err
			}
			err = e.Unwrap()
		case interface{ Unwrap() []error }:
			if len(e.Unwrap()) == 0 {
				return err
			}
			err = e.Unwrap()[0]
		default:
			return err
		}
	}
}

// Words is a text without the words that have digits in them: ids, addresses, times.
func Words(text string) string {
	var b strings.Builder
	for word := range strings.FieldsSeq(text) {
		if !strings.ContainsAny(word, "0123456789") {
			b.WriteString(word + " ")
		}
	}
	return b.String()
}
