package unit

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/changefeed/cmd/changefeed/internal/place"
	"github.com/millrace/changefeed/cmd/changefeed/internal/report"
	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/notes"
)

// office is a store with a monitored container of four documents and a lease container.
type office struct {
	db                *docstore.DB
	monitored, leases *docstore.Container
	store             *docstore.Leases
}

func newOffice(t *testing.T) office {
	t.Helper()
	db, err := docstore.Open("", docstore.Options{InMemory: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	o := office{db: db}
	if o.monitored, err = db.CreateContainer(t.Context(),
		docstore.ContainerSpec{ID: "orders", Paths: []string{"/id"}}); err != nil {
		t.Fatal(err)
	}
	if o.leases, err = db.CreateContainer(t.Context(),
		docstore.ContainerSpec{ID: "leases", Paths: []string{"/id"}}); err != nil {
		t.Fatal(err)
	}
	if o.store, err = docstore.NewLeases(t.Context(), o.leases, "mailer", o.monitored); err != nil {
		t.Fatal(err)
	}
	for i := range 4 {
		o.put(t, o.monitored, fmt.Sprintf(`{"id":"%d"}`, i))
	}
	return o
}

func (o office) put(t *testing.T, c *docstore.Container, body string) {
	t.Helper()
	if _, err := c.Upsert(t.Context(), []byte(body)); err != nil {
		t.Fatal(err)
	}
}

// lease adds a lease of a range.
func (o office) lease(t *testing.T, part string, edit func(*feed.Record)) {
	t.Helper()
	r, err := feed.ParseRange(part)
	if err != nil {
		t.Fatal(err)
	}
	l := feed.Record{
		Kind: feed.KindLease, Token: part, Range: r, Version: 1, Owner: "one", Epoch: "e1",
		Position: feed.Position{Start: feed.FromBeginning()},
	}
	if edit != nil {
		edit(&l)
	}
	if _, err := o.store.Create(t.Context(), l); err != nil {
		t.Fatal(err)
	}
}

// list reads the units of a lease container, on all containers.
func (o office) list(t *testing.T, leases *docstore.Container) ([]Unit, error) {
	t.Helper()
	var all []*place.Container
	for _, c := range o.db.Containers() {
		all = append(all, place.Stored(c, place.Address{Container: c.ID(), Database: c.Database()}))
	}
	return List(t.Context(), place.Stored(leases, place.Address{Container: leases.ID(), Database: leases.Database()}),
		all)
}

func (o office) survey(t *testing.T) []Unit {
	t.Helper()
	units, err := o.list(t, o.leases)
	if err != nil {
		t.Fatal(err)
	}
	return units
}

// notesOf are the notes of all rows of the first unit, by kind and token.
func notesOf(units []Unit) string {
	var b strings.Builder
	for _, r := range units[0].Rows {
		fmt.Fprintf(&b, "%s %s%s: %s\n", r.Kind, r.Lease, r.Range, strings.Join(r.Notes, "; "))
	}
	return b.String()
}

func TestWhatIsOddAboutALeaseIsNoted(t *testing.T) {
	for _, tt := range []struct {
		name string
		make func(t *testing.T, o office)
		want string
	}{
		{"nothing", func(t *testing.T, o office) { o.lease(t, "-FF", nil) }, "lease -FF-FF: \n"},
		{"free", func(t *testing.T, o office) {
			o.lease(t, "-FF", func(l *feed.Record) { l.Owner, l.Epoch = "", "" })
			o.lease(t, "-1F", nil)
		}, "lease -FF-FF: free: nobody works on it; overlaps"},
		{"of another make", func(t *testing.T, o office) {
			o.lease(t, "-FF", func(l *feed.Record) { l.Epoch = "" })
		}, "owned by a processor of another make"},
		{"failing", func(t *testing.T, o office) {
			o.lease(t, "-FF", func(l *feed.Record) { l.Attempts = 7 })
		}, "the batch after its position has failed 7 times"},
		{"handed over", func(t *testing.T, o office) {
			o.lease(t, "-FF", func(l *feed.Record) { l.Fence = time.Now().Add(time.Hour) })
		}, "its new owner begins in"},
		{"handed over long ago", func(t *testing.T, o office) {
			o.lease(t, "-FF", func(l *feed.Record) { l.Fence = time.Now().Add(-time.Hour) })
		}, "lease -FF-FF: \n"},
		{"a marker that cannot be read", func(t *testing.T, o office) {
			o.put(t, o.leases, fmt.Sprintf(`{"id":"%s.info","Owner":5}`, o.store.Prefix()))
		}, "Owner is 5: want a string"},
		{"over another", func(t *testing.T, o office) {
			o.lease(t, "-3F", nil)
			o.lease(t, "1F-2F", nil)
		}, "keys in both are handled twice\nlease 1F-2F1F-2F: overlaps"},
		{
			"splitting", func(t *testing.T, o office) {
				o.lease(t, "-FF", func(l *feed.Record) { l.State = feed.StateSplitting })
				o.lease(t, "-1F", nil)
				o.lease(t, "1F-FF", nil)
			},
			"lease -1F-1F: \nlease -FF-FF: it is being replaced by leases of its parts, because its partition was split, " +
				"or to have more leases\nlease 1F-FF1F-FF: \n",
		},
		{"retired", func(t *testing.T, o office) {
			o.lease(t, "-FF", func(l *feed.Record) { l.State = feed.StateRetired })
			o.lease(t, "-1F", nil)
			o.lease(t, "1F-FF", nil)
		}, "replaced by others, and left because it could not be deleted: delete it"},
		{"holes", func(t *testing.T, o office) {
			o.lease(t, "1F-2F", nil)
			o.lease(t, "3F-4F", nil)
		}, "hole -1F: no lease covers these keys: running processors repair that\nlease 1F-2F1F-2F: \nhole 2F-3F: "},
		{"overlap", func(t *testing.T, o office) {
			o.lease(t, "-2F", nil)
			o.lease(t, "1F-FF", nil)
		}, "lease -2F-2F: overlaps mailer"},
		{"too old", func(t *testing.T, o office) {
			o.lease(t, "-FF", func(l *feed.Record) { l.Mode = feed.AllVersionsAndDeletes })
		}, "lag unknown: "},
		{
			"without a position", func(t *testing.T, o office) {
				o.put(t, o.leases,
					fmt.Sprintf(`{"id":"%s..0","version":0,"LeaseToken":"0","Owner":null,"ContinuationToken":null}`,
						o.store.Prefix()))
			},
			"lease 0: stopped: no instance runs; lag unknown: it has no position, and nothing says where its " +
				"unit began",
		},
		{"of an older Java processor", func(t *testing.T, o office) {
			o.put(t, o.leases,
				`{"id":"mailerlocalhost_default_orders..0","LeaseToken":"0","ContinuationToken":"\"1\"","Owner":null}`)
		}, "lease 0-FF: not a lease document that this processor can write: it is a Java processor's; " +
			"stopped: no instance runs, 3 changes are waiting\n"},
		{"a second set", func(t *testing.T, o office) {
			o.lease(t, "-FF", nil)
			o.put(t, o.leases, fmt.Sprintf(`{"id":"%s..0","LeaseToken":"0","ContinuationToken":"\"1\"","Owner":null}`,
				strings.Replace(o.store.Prefix(), "localhost", "127.0.0.1", 1)))
		}, "under another name of this machine: delete the one that is not wanted"},
		{"no lease document", func(t *testing.T, o office) {
			o.put(t, o.leases, fmt.Sprintf(`{"id":"%s..-FF","version":1,"LeaseToken":5}`, o.store.Prefix()))
		}, "LeaseToken is 5: want a string"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			o := newOffice(t)
			tt.make(t, o)
			if got := notesOf(o.survey(t)); !strings.Contains(got, tt.want) {
				t.Errorf("got %s\nwant %s", got, tt.want)
			}
		})
	}
}

// A lease says which keys it holds; where another processor has moved its position since, it holds none.
func TestALeaseSaysWhatItHolds(t *testing.T) {
	o := newOffice(t)
	for part, at := range map[string]string{"-1F": "4", "1F-FF": "5"} {
		o.lease(t, part, func(r *feed.Record) {
			r.Position = feed.Position{Token: "5"}
			r.Properties = map[string]string{"changefeed.held": `{"at":"` + at + `","keys":["[\"a\"]","[\"b\"]"]}`}
		})
	}
	if got := notesOf(o.survey(t)); strings.Count(got, "partition keys held") != 1 ||
		!strings.Contains(got, `partition keys held: 2, ["a"] ["b"]: see changefeed dlq list`) {
		t.Errorf("the notes are %s", got)
	}
	for _, r := range o.survey(t)[0].Rows {
		if want := map[string]int{"1F-FF": 2}[r.Lease]; r.Held != want {
			t.Errorf("lease %s holds %d keys, want %d", r.Lease, r.Held, want)
		}
	}
}

// A lease says which keys it has set aside. Where another processor has moved its position since, those are left whose
// changes the old position had passed.
func TestALeaseSaysWhatItHasSetAside(t *testing.T) {
	o := newOffice(t)
	aside := notes.Aside{At: "5", Keys: []notes.AsideKey{
		{Key: `["a"]`, From: "3", LSN: 4, Passed: true},
		{Key: `["b"]`, From: "5", LSN: 6},
	}}
	for part, at := range map[string]string{"-1F": "5", "1F-2F": "6", "2F-FF": "5"} {
		o.lease(t, part, func(r *feed.Record) {
			r.Position = feed.Position{Token: at}
			if part != "2F-FF" {
				r.Properties = map[string]string{notes.AsideProperty: aside.String()}
			}
		})
	}
	units := o.survey(t)
	want := map[string]int{"-1F": 2, "1F-2F": 1}
	for _, r := range units[0].Rows {
		text, err := report.Line(r.line())
		if err != nil {
			t.Fatal(err)
		}
		note := fmt.Sprintf("partition keys set aside, to be read again: %d", r.SetAside)
		if n := want[r.Lease]; r.SetAside != n || slices.Contains(r.Notes, note) != (n > 0) ||
			!strings.Contains(string(text), fmt.Sprintf(`"set_aside":%d,`, n)) {
			t.Errorf("lease %s has %d keys set aside, want %d: %s", r.Lease, r.SetAside, n, text)
		}
	}
}

// A unit that has ended in good order is not a unit whose leases nobody takes.
func TestAUnitWhoseInstancesHaveEndedIsStopped(t *testing.T) {
	free := func(l *feed.Record) { l.Owner, l.Epoch = "", "" }
	synctest.Test(t, func(t *testing.T) {
		for _, tt := range []struct {
			name string
			host func(*feed.Record) // nil for none
			edit func(*feed.Record) // of the second lease
			want string             // of the first
			note string
		}{
			{"nobody has worked yet", nil, free, "stopped", "stopped: no instance runs, 4 changes are waiting"},
			{"ended", func(l *feed.Record) {
				l.State = feed.StateRetired
			}, free, "stopped", "stopped: no instance runs, 4 changes are waiting"},
			{"at work", func(*feed.Record) {}, free, "free", "free: nobody works on it"},
			{"another processor at work", nil, func(l *feed.Record) {
				l.Epoch = ""
			}, "free", "free: nobody works on it"},
			{"its neighbour's owner has died", nil, func(l *feed.Record) {
				l.Expiration = time.Nanosecond
			}, "stopped", "stopped: no instance runs, 4 changes are waiting"},
			{"nothing is waiting", nil, func(l *feed.Record) {
				free(l)
				l.State = feed.StateRetired
			}, "stopped", "stopped: no instance runs, nothing is waiting"},
		} {
			o := newOffice(t)
			if tt.host != nil {
				l := feed.Record{
					Kind: feed.KindHost, Token: "one/e1", Owner: "one", Epoch: "e1", Version: 1,
					Expiration: time.Minute,
				}
				tt.host(&l)
				if _, err := o.store.Create(t.Context(), l); err != nil {
					t.Fatal(err)
				}
			}
			o.lease(t, "-FF", func(l *feed.Record) {
				free(l)
				if strings.Contains(tt.note, "nothing") {
					l.Position = feed.At(`"4"`)
				}
			})
			o.lease(t, "FE-FF", tt.edit)
			time.Sleep(2 * time.Second) // times of the store are in seconds
			for _, r := range o.survey(t)[0].Rows {
				if r.Kind == KindInstance && tt.want == "stopped" && strings.Join(r.Notes, "") != "stopped 2s ago" {
					t.Errorf("%s: the instance has the notes %q", tt.name, r.Notes)
				}
				if r.Lease == "-FF" && (r.State != tt.want || r.Notes[0] != tt.note) {
					t.Errorf("%s: state %s, notes %q; want %s, %s", tt.name, r.State, r.Notes, tt.want, tt.note)
				}
			}
		}
	})
}

func TestInstancesThatAreGoneAreNotCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOffice(t)
		host := func(name string, edit func(*feed.Record)) {
			l := feed.Record{
				Kind: feed.KindHost, Token: name + "/e1", Owner: name, Epoch: "e1", Version: 1,
				Expiration: time.Minute,
			}
			edit(&l)
			if _, err := o.store.Create(t.Context(), l); err != nil {
				t.Fatal(err)
			}
		}
		host("one", func(*feed.Record) {})
		host("two", func(l *feed.Record) { l.State = feed.StateRetired })
		host("three", func(l *feed.Record) { l.Expiration = time.Nanosecond })
		o.lease(t, "-FF", nil)
		time.Sleep(2 * time.Second) // times of the store are in seconds
		units := o.survey(t)
		got := units[0].Listing().Sum()
		if got.Leases != 1 || got.Instances != 1 || got.Pending != 4 || !got.Known || !got.Exact {
			t.Errorf("got %+v, want one instance with one lease and a lag of 4", got)
		}
	})
}

// A newer version may keep records of other kinds, which are no leases, and leases in other states.
func TestRecordsOfALaterVersionAreNoLeasesAndGoWithTheirUnit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOffice(t)
		o.lease(t, "-FF", func(l *feed.Record) { l.State = "paused" })
		for _, r := range []feed.Record{{Kind: "control"}, {Kind: "held", Token: "-FF", Owner: "one", Epoch: "e1"}} {
			if _, err := o.store.Create(t.Context(), r); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(2 * time.Minute)
		units := o.survey(t)
		if got := units[0].Listing().Sum(); got.Leases != 1 || got.Known {
			t.Errorf("got %+v, want one lease whose lag is not known", got)
		}
		for _, want := range []string{
			`state "paused" belongs to a later version`,
			`document : a record of kind "control"`, `document -FF: a record of kind "held"`,
		} {
			if got := notesOf(units); !strings.Contains(got, want) {
				t.Errorf("got %s, want %q", got, want)
			}
		}
		if _, n, err := Delete(t.Context(), "mailer", units, surely); n != 1 || err != nil {
			t.Errorf("Delete: %d leases, %v, want 1", n, err)
		}
		if left := o.survey(t); len(left) != 0 {
			t.Errorf("left: %s", notesOf(left))
		}
	})
}

func TestTheLagOfALeaseOnAPartitionIsKnown(t *testing.T) {
	o := newOffice(t)
	o.put(t, o.leases,
		fmt.Sprintf(`{"id":"%s..0","version":0,"LeaseToken":"0","Owner":"dotnet","ContinuationToken":"\"3\""}`,
			o.store.Prefix()))
	row := o.survey(t)[0].Rows[0]
	if row.Lag == nil || *row.Lag != 2 && *row.Lag != 1 || row.Range != "-FF" || row.Lease != "0" {
		t.Errorf("got lag %v of range %q, want that of the whole partition", row.Lag, row.Range)
	}
}

func TestDocumentsOfNoUnitAreShown(t *testing.T) {
	o := newOffice(t)
	o.lease(t, "-FF", nil)
	o.put(t, o.leases, `{"id":"mailerhost_AAAA_BBBB..-FF","Owner":"two"}`)
	o.put(t, o.leases, fmt.Sprintf(`{"id":"%s..-FF","Owner":"three"}`, strings.Replace(o.store.Prefix(), "localhost",
		"shop.example", 1)))
	o.put(t, o.leases, `{"id":"note"}`)
	var units []Unit
	o.put(t, o.leases, fmt.Sprintf(`{"id":"%s-old"}`, o.store.Prefix())) // begins like the records of a unit
	units = o.survey(t)
	if len(units) != 2 || len(units[1].Rows) != 4 {
		t.Fatalf("got %d units, want that of the lease and one of strays", len(units))
	}
	for i, want := range []string{
		"a lease, but of a container that is not in this store",
		"a lease of a unit that has its containers from another address",
		"no lease of a container", "no lease of a container",
	} {
		got := strings.Join(units[1].Rows[i].Notes, "; ")
		if !strings.HasPrefix(got, want) {
			t.Errorf("%s: got %q, want %q", units[1].Rows[i].ID, got, want)
		}
	}
}

func TestRowsAreObjectsWithoutWhatHasNoMeaning(t *testing.T) {
	o := newOffice(t)
	o.lease(t, "-1F", nil)
	units := o.survey(t)
	var texts []string
	for _, r := range units[0].Rows {
		text, err := report.Line(r.line())
		if err != nil {
			t.Fatal(err)
		}
		texts = append(texts, string(text))
	}
	if len(texts) != 2 || !strings.Contains(texts[0], `"kind":"lease"`) ||
		!strings.Contains(texts[0], `"position":"`) ||
		!strings.Contains(texts[1], `"kind":"hole"`) || strings.Contains(texts[1], `"position"`) {
		t.Errorf("got %q, want a lease and a hole, which has no position", texts)
	}
}

// A name may be that of several units, which are told apart by what they read.
func TestUnitsOfOneNameAreSeveral(t *testing.T) {
	o := newOffice(t)
	var err error
	for _, name := range []string{"orders", "bills", "cards", "desks", "events"} {
		other := o
		if name != "orders" {
			if other.monitored, err = o.db.CreateContainer(t.Context(),
				docstore.ContainerSpec{ID: name, Paths: []string{"/id"}}); err != nil {
				t.Fatal(err)
			}
		}
		if other.store, err = docstore.NewLeases(t.Context(), o.leases, "mailer", other.monitored); err != nil {
			t.Fatal(err)
		}
		other.lease(t, "-1F", nil)
		other.lease(t, "1F-FF", nil)
	}
	const want = "mailer on bills: 2, mailer on cards: 2, mailer on desks: 2, mailer on events: 2, mailer on orders: 2"
	for range 30 { // each time in the same order
		var got []string
		for _, u := range o.survey(t) {
			got = append(got, fmt.Sprintf("%s on %s: %d", u.Processor, u.Container, len(u.Rows)))
		}
		if strings.Join(got, ", ") != want {
			t.Fatalf("units %q, want %s", got, want)
		}
	}
	ended, end := context.WithCancel(t.Context())
	end()
	if documents, err := everything(ended, o.leases); !errors.Is(err, context.Canceled) {
		t.Errorf("%d documents, %v, of a search that was cut short", len(documents), err)
	}
}

func TestAContainerOfAnotherKeyHasNoLeases(t *testing.T) {
	o := newOffice(t)
	other, err := o.db.CreateContainer(t.Context(), docstore.ContainerSpec{ID: "other", Paths: []string{"/city"}})
	if err != nil {
		t.Fatal(err)
	}
	o.put(t, other, `{"id":"1"}`)
	if _, err := o.list(t, other); err == nil || !strings.Contains(err.Error(), "by /id or /partitionKey") {
		t.Errorf("got error %v, want one that tells the keys of lease containers", err)
	}
}

// A survey needs the address of the leases alone.
func TestUnitsAreSurveyedFromTheAddressOfTheirLeases(t *testing.T) {
	dir := t.TempDir()
	db, err := docstore.Open(dir, docstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	orders, err := db.CreateContainer(t.Context(), docstore.ContainerSpec{ID: "orders", Paths: []string{"/id"}})
	if err != nil {
		t.Fatal(err)
	}
	leases, err := db.CreateContainer(t.Context(), docstore.LeaseSpec("leases"))
	if err != nil {
		t.Fatal(err)
	}
	store, err := docstore.NewLeases(t.Context(), leases, "mailer", orders)
	if err != nil {
		t.Fatal(err)
	}
	office{store: store}.lease(t, "-FF", nil)
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	opener := place.NewOpener(place.Settings{})
	defer opener.Close()
	at, err := place.Parse("ADDRESS", "docstore:"+dir+"#leases")
	if err != nil {
		t.Fatal(err)
	}
	units, err := Survey(t.Context(), opener, at)
	if err != nil || len(units) != 1 || units[0].Processor != "mailer" || units[0].Container != "orders" {
		t.Errorf("got %v, %v, want mailer on orders", units, err)
	}
	if _, err := Survey(t.Context(), opener, at.Beside("nothing")); !errors.Is(err, place.ErrNoContainer) {
		t.Errorf("got %v, want that there is no such container", err)
	}
}

// What a survey has seen is the beginning of the pace that the next one knows.
func TestASecondSurveyKnowsThePace(t *testing.T) {
	o := newOffice(t)
	o.lease(t, "-FF", nil)
	other := o // a unit of the same name on another container
	var err error
	if other.monitored, err = o.db.CreateContainer(t.Context(),
		docstore.ContainerSpec{ID: "returns", Paths: []string{"/id"}}); err != nil {
		t.Fatal(err)
	}
	if other.store, err = docstore.NewLeases(t.Context(), o.leases, "mailer", other.monitored); err != nil {
		t.Fatal(err)
	}
	other.lease(t, "-FF", nil)
	var s Surveyor
	at := func(c *docstore.Container) *place.Container {
		return place.Stored(c, place.Address{Container: c.ID(), Database: c.Database()})
	}
	for round := range 2 {
		units, err := s.list(t.Context(), at(o.leases), []*place.Container{at(o.monitored), at(other.monitored)})
		if err != nil || len(units) != 2 {
			t.Fatalf("%d units, %v", len(units), err)
		}
		for _, u := range units {
			if known := u.Rows[0].Pace != nil; known != (round > 0) {
				t.Errorf("round %d: the pace of the unit on %s is known: %t", round, u.Container, known)
			}
		}
	}
}
