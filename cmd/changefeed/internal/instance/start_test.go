package instance

import (
	"testing"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/feed"
)

// TestANewUnitBeginsWithTheOldestChange unless the user chose a start. An existing unit keeps its own.
func TestANewUnitBeginsWithTheOldestChange(t *testing.T) {
	_, store := inMemory(t)
	choose := func(o changefeed.Options) feed.Start {
		t.Helper()
		i := Instance{Settings: Settings{Name: "mailer", Options: o}}
		if err := i.chooseStart(t.Context(), store); err != nil {
			t.Fatal(err)
		}
		return i.Options.Start
	}
	if got := choose(changefeed.Options{}); !got.IsBeginning() {
		t.Errorf("a new unit begins from %q", got.Given())
	}
	if got := choose(changefeed.Options{Start: feed.FromNow()}); got != feed.FromNow() {
		t.Errorf("a new unit that is to begin now begins from %q", got.Given())
	}
	if got := choose(changefeed.Options{Mode: feed.AllVersionsAndDeletes}); !got.IsZero() {
		t.Errorf("a new unit of all versions begins from %q", got.Given())
	}
	host := feed.Record{Kind: feed.KindHost, Token: "one.e1", Owner: "one", Epoch: "e1"}
	if _, err := store.Create(t.Context(), host); err != nil {
		t.Fatal(err)
	}
	if got := choose(changefeed.Options{}); !got.IsBeginning() {
		t.Errorf("a unit with an instance and without leases begins from %q", got.Given())
	}
	lease := feed.Record{
		Kind: feed.KindLease, Token: feed.FullRange().String(), Range: feed.FullRange(), Version: 1,
		Position: feed.At(`"7"`), State: feed.StateLive,
	}
	if _, err := store.Create(t.Context(), lease); err != nil {
		t.Fatal(err)
	}
	if got := choose(changefeed.Options{}); !got.IsZero() {
		t.Errorf("a unit with a lease is to begin from %q", got.Given())
	}
}
