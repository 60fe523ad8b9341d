package records

import (
	"testing"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/notes"
	"github.com/millrace/changefeed/internal/processor/balance"
)

// A lease that was handed over is not begun until its receiver writes the next term, whether the receiver knows of the
// note or not.
func TestALeaseIsNotBegunUntilItsReceiverWritesItsTerm(t *testing.T) {
	given := feed.Record{State: feed.StateLive, Owner: "a", Epoch: "A", Properties: map[string]string{}}
	BeginTerm(&given)
	if IsUnbegun(given) {
		t.Error("a lease with an owner at work counts as not begun")
	}
	GiveTo(&given, balance.Owner{Instance: "b", Epoch: "B"})
	if !IsUnbegun(given) || given.Owner != "b" || given.Epoch != "B" {
		t.Errorf("%+v: want a lease of b that is not begun", given)
	}
	begun, older, freed, splitting := given, given, given, given
	BeginTerm(&begun)
	SetProperty(&older, notes.TermProperty, notes.PlainNumber(TermOf(given)+1)) // an older version keeps the note
	GiveTo(&freed, balance.Owner{})
	splitting.State = feed.StateSplitting
	for name, l := range map[string]feed.Record{
		"begun": begun, "begun by an older version": older, "freed": freed, "splitting": splitting,
	} {
		if IsUnbegun(l) {
			t.Errorf("%s: %+v counts as not begun", name, l)
		}
	}
	if begun.Properties[notes.GivenProperty] != "" || freed.Properties[notes.GivenProperty] != "" {
		t.Errorf("the note stays: %v, %v", begun.Properties, freed.Properties)
	}
}
