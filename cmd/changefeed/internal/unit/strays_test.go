package unit

import (
	"slices"
	"strings"
	"testing"

	"github.com/millrace/changefeed/cmd/changefeed/internal/place"
	"github.com/millrace/changefeed/feed"
)

// surveyAll lists the units on all containers of the store, as the command does.
func (o office) surveyAll(t *testing.T) []Unit {
	t.Helper()
	var all []*place.Container
	for _, c := range o.db.Containers() {
		all = append(all, place.Stored(c, place.Address{Container: c.ID(), Database: c.Database()}))
	}
	units, err := List(t.Context(), place.Stored(o.leases, place.Address{Container: "leases"}), all)
	if err != nil {
		t.Fatal(err)
	}
	return units
}

// anyFault looks for all faults that have a word.
func anyFault(t *testing.T) *Faults {
	t.Helper()
	var f Faults
	words, _ := faultWords()
	if err := f.Set(strings.Join(words, ",")); err != nil {
		t.Fatal(err)
	}
	return &f
}

// A unit whose container was deleted is a fault also beside another unit, and if the container was made anew. Documents
// that are no records of a unit are none.
func TestAUnitOfADeletedContainerIsAFault(t *testing.T) {
	o := newOffice(t)
	o.lease(t, "-FF", nil)
	if _, err := o.store.Create(t.Context(), feed.Record{Kind: feed.KindInfo}); err != nil {
		t.Fatal(err)
	}
	if _, err := o.store.Create(t.Context(), feed.Record{Kind: feed.KindHost, Token: "host.a"}); err != nil {
		t.Fatal(err)
	}
	old := o.store.Prefix()
	o.drop(t)
	o.put(t, o.leases, `{"id":"note.txt"}`)
	o.put(t, o.leases, `{"id":"other_AAAA_BBBB.info"}`)
	if got := anyFault(t).Find(o.surveyAll(t)); got != "there is no unit" {
		t.Errorf("alone: found %q", got)
	}
	units := append([]Unit{*stoppedUnit(0)}, o.surveyAll(t)...)
	want := old + ": 3 records of unit mailer, whose container does not exist any more"
	if got := anyFault(t).Find(units); got != want {
		t.Errorf("found %q, want %q", got, want)
	}
	rows := units[1].Rows
	slices.SortFunc(rows, func(a, b Row) int { return strings.Compare(a.ID, b.ID) })
	for i, want := range []string{
		"a lease of unit mailer on a container that does not exist any more: changefeed leases gc --name mailer removes it",
		"a record of unit mailer on a container that does not exist any more: changefeed leases gc --name mailer removes it",
		"a record of unit mailer on a container that does not exist any more: changefeed leases gc --name mailer removes it",
		"no lease of a container in this store", "no lease of a container in this store",
	} {
		if got := strings.Join(rows[i].Notes, "; "); got != want {
			t.Errorf("%s: %q, want %q", rows[i].ID, got, want)
		}
	}
}

// Leases of a container that is elsewhere are a fault, too: nobody watches them from here.
func TestLeasesOfAContainerElsewhereAreAFault(t *testing.T) {
	o := newOffice(t)
	o.put(t, o.leases, `{"id":"mailerhost_AAAA_BBBB..-7F"}`)
	o.put(t, o.leases, `{"id":"mailerhost_AAAA_BBBB..7F-FF"}`)
	units := append([]Unit{*stoppedUnit(0)}, o.surveyAll(t)...)
	const want = "mailerhost_AAAA_BBBB: 2 records of a unit whose container is not here"
	if got := anyFault(t).Find(units); got != want {
		t.Errorf("found %q, want %q", got, want)
	}
}
