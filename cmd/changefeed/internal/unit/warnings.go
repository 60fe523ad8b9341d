package unit

import (
	"fmt"

	"github.com/millrace/changefeed/admin"
)

// Warnings about a unit as a whole, which no single lease shows: nothing fails, and yet somebody has made a mistake.

// A Warning is a remark for operators about a unit as a whole.
type Warning struct {
	Word admin.Word // for --fail-on
	Text string
}

// WarnAlike is the word for a unit whose name may be mistyped. A unit does not see the others, so package admin has no
// such word.
const WarnAlike admin.Word = "alike"

// Warnings returns the warnings about a unit.
func (u *Unit) Warnings() (all []Warning) {
	for _, f := range u.Listing().Findings() {
		if f.ID == "" && f.Range.Empty() {
			all = append(all, Warning{f.Word, f.Text})
		}
	}
	for _, other := range u.Alike {
		all = append(all, Warning{WarnAlike, fmt.Sprintf("unit %s has a similar name and reads the same container: each of "+
			"the two handles every change; if one name is mistyped, stop its instances and delete that unit; if both are "+
			"meant, say so with --intended", other)})
	}
	return all
}

// warningOf returns the text of the warning with a word; empty if there is none.
func (u *Unit) warningOf(word string) string {
	for _, w := range u.Warnings() {
		if string(w.Word) == word {
			return w.Text
		}
	}
	return ""
}
