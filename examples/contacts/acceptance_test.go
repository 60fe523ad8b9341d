package main

// What "the article's system works" means, in seven points, each a test:
//
//	1 eight routes with their codes                    TestAcceptance1TheEightRoutes
//	2 a contact and its events are one atomic write    TestAcceptance2AContactAndItsEventsAreOneWrite
//	3 one event per action, soft deletes               TestAcceptance3OneEventPerAction
//	4 events expire, contacts do not                   TestAcceptance4EventsExpireAndContactsDoNot
//	5 order per contact, each event once               TestAcceptance5OrderPerContactWithSeveralRelays
//	6 outages and crashes lose nothing                 TestAcceptance6AnOutageLosesNothing, TestAcceptance6ARelayThatDiesAnywhereLosesNothing, TestABrokerIsRestarted
//	7 what the tests of the .NET sample show           below
//
// The 46 tests of the sample, by what they show:
//
//	domain       new: created event (1), loaded: no events (1)       TestANewContactHasItsCreatedEventOnly, TestALoadedContactHasNoEvents
//	             an event per setter, and for delete (5)             TestEachActionHasItsEvent
//	             blank name, blank company: refused, no event (2)    TestWhatIsRefusedRecordsNothing
//	             remove, replace in place, order of two kinds (3)    TestEventsOfAContactAreForgottenReplacedAndInOrder
//	validators   of create and of the updates (2)                    TestWhatIsValid
//	commands     create, four updates, delete, get, list (8)         TestAcceptance1TheEightRoutes
//	integration  create: two documents; alone: one (2)               TestAcceptance2AContactAndItsEventsAreOneWrite, TestAUnitWritesWhatItHasTracked
//	             each update, delete: two more documents (6)         TestAcceptance3OneEventPerAction
//	             list: all, page by page (3)                         TestAListIsReadPageByPage
//	             tracked once, nothing to save, unmodified (5)       TestAUnitWritesWhatItHasTracked
//	             304, 412 of a batch and of a single write (3)       TestAcceptance1TheEightRoutes, TestAUnitWritesWhatItHasTracked
//	             not found, also to delete; 409 (5)                  TestAcceptance1TheEightRoutes, TestAUnitWritesWhatItHasTracked

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/cosmos"
	"github.com/millrace/changefeed/cosmosrest/cosmostest"
	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/outbox"
)

// service is the service on a store, without a network.
type service struct {
	testing.TB
	contacts *Contacts
	handler  http.Handler
}

func newService(t testing.TB, on store) *service {
	c := &Contacts{on, outbox.Options{}}
	return &service{t, c, (&api{c, newJournal()}).makeHandler()}
}

// do sends a request with headers, name and value each.
func (s *service) do(method, path, body string, headers ...string) *httptest.ResponseRecorder {
	s.Helper()
	r := httptest.NewRequestWithContext(s.Context(), method, path, strings.NewReader(body))
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	for h := range slices.Chunk(headers, 2) {
		r.Header.Set(h[0], h[1])
	}
	w := httptest.NewRecorder()
	s.handler.ServeHTTP(w, r)
	if kind := w.Header().Get("Content-Type"); w.Code >= http.StatusBadRequest && kind != "application/problem+json" &&
		!strings.HasPrefix(kind, "text/plain") {
		s.Errorf("%s %s: %d with Content-Type %q", method, path, w.Code, kind)
	}
	return w
}

// want fails unless an answer has a status.
func (s *service) want(w *httptest.ResponseRecorder, status int) {
	s.Helper()
	if w.Code != status {
		s.Fatalf("got %d %s, want %d", w.Code, w.Body, status)
	}
}

const ada = `{"firstName":"Ada","lastName":"Lovelace","companyName":"Engines"}`

// add makes a contact, and returns its path and its ETag.
func (s *service) add(body string, headers ...string) (path, etag string) {
	s.Helper()
	w := s.do("POST", root, body, headers...)
	s.want(w, http.StatusCreated)
	return w.Header().Get("Location"), w.Header().Get("ETag")
}

// inStore opens an empty container of contacts, and one for leases.
func inStore(t testing.TB) (contacts, leases *docstore.Container) {
	t.Helper()
	db, err := docstore.Open(t.TempDir(), docstore.Options{NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(db.Check(), db.Close()); err != nil {
			t.Error(err)
		}
	})
	return inDatabase(t, db, "")
}

func inDatabase(t testing.TB, db *docstore.DB, name string) (contacts, leases *docstore.Container) {
	t.Helper()
	spec := docstore.ContainerSpec{
		ID: "contacts", Database: name, Paths: []string{"/partitionKey"},
		DefaultTTL: new(docstore.NoDefaultTTL), Ranges: 4,
	}
	contacts, err := db.CreateContainer(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	leasesSpec := docstore.LeaseSpec("leases")
	leasesSpec.Database = name
	if leases, err = db.CreateContainer(t.Context(), leasesSpec); err != nil {
		t.Fatal(err)
	}
	return contacts, leases
}

// onEachStore runs a test on the embedded store and over HTTP.
func onEachStore(t *testing.T, test func(s *service)) {
	t.Run("docstore", func(t *testing.T) {
		contacts, _ := inStore(t)
		test(newService(t, contacts))
	})
	t.Run("cosmos", func(t *testing.T) {
		server := cosmostest.NewTestServer(t)
		if _, err := server.DB.CreateDatabase(t.Context(), "crm", nil); err != nil {
			t.Fatal(err)
		}
		inDatabase(t, server.DB, "crm")
		client, err := cosmos.OpenString(t.Context(), server.ConnectionString(), cosmos.Options{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(client.Close)
		contacts, err := client.Container(t.Context(), "crm", "contacts")
		if err != nil {
			t.Fatal(err)
		}
		test(newService(t, contacts))
	})
}

// documents are those of a contact in the order of the feed, the contact itself last.
func (s *service) documents(path string) (all []feed.Change) {
	s.Helper()
	key := feed.Key(strings.TrimPrefix(path, root+"/"))
	for page, err := range changefeed.Pull(s.Context(), s.contacts.store, feed.FullRange(),
		feed.Position{Start: feed.FromBeginning()}, changefeed.PullOptions{}) {
		if err != nil {
			s.Fatal(err)
		}
		for _, c := range page.Changes {
			if c.PartitionKey == key {
				all = append(all, c)
			}
		}
	}
	return all
}

// events are those of a contact in their order.
func (s *service) events(path string) (messages []outbox.Message) {
	s.Helper()
	decode := outbox.EventsOfType(outbox.EventType)
	for _, c := range s.documents(path) {
		m, ok, err := decode(&c)
		if err != nil {
			s.Fatal(err)
		}
		if ok {
			messages = append(messages, m)
		}
	}
	slices.SortStableFunc(messages, func(a, b outbox.Message) int { return int(a.Seq) - int(b.Seq) })
	return messages
}

func actions(messages []outbox.Message) (names []string) {
	for _, m := range messages {
		names = append(names, m.Action)
	}
	return names
}

func TestAcceptance1TheEightRoutes(t *testing.T) {
	onEachStore(t, func(s *service) {
		path,
			first := s.add(`{"firstName":"Ada","lastName":"Lovelace","email":"ada@example.com","description":"d","companyName":"Engines"}`)

		w := s.do("GET", path, "")
		s.want(w, http.StatusOK)
		want := fmt.Sprintf(`{"id":%q,"description":"d","email":"ada@example.com","name":{"firstName":"Ada","lastName":"Lovelace"},"company":{"companyName":"Engines","street":"","houseNumber":"","postalCode":"","city":"","country":""}}`, strings.TrimPrefix(path, root+"/"))
		if diff := cmp.Diff(want, strings.TrimSpace(w.Body.String())); diff != "" || w.Header().Get("ETag") != first {
			s.Error(diff, w.Header())
		}
		for _, header := range []string{"ETag", "If-None-Match"} {
			s.want(s.do("GET", path, "", header, first), http.StatusNotModified)
			s.want(s.do("GET", path, "", header, `"another"`), http.StatusOK)
		}

		// Each update, with each header, under an ETag that has moved on, the right one, and none.
		latest := first
		for action, body := range map[string]string{
			"update-name":        `{"firstName":"A","lastName":"L"}`,
			"update-description": `{"description":"e"}`,
			"update-email":       `{"email":null}`,
			"update-company":     `{"companyName":"C","street":"S","houseNumber":"1","postalCode":"2","city":"T","country":"U"}`,
		} {
			for _, header := range []string{"ETag", "If-Match"} {
				s.want(s.do("POST", path+"/"+action, body, header, `"stale"`), http.StatusPreconditionFailed)
				w := s.do("POST", path+"/"+action, body, header, latest)
				s.want(w, http.StatusNoContent)
				if latest == w.Header().Get("ETag") {
					s.Errorf("%s: the ETag is still %s", action, latest)
				}
				latest = w.Header().Get("ETag")
			}
			w := s.do("POST", path+"/"+action, body)
			s.want(w, http.StatusNoContent)
			latest = w.Header().Get("ETag")
		}
		s.want(s.do("GET", path, "", "If-None-Match", first), http.StatusOK)

		w = s.do("GET", root+"?pageSize=5", "")
		s.want(w, http.StatusOK)
		list := fmt.Sprintf(`{"hasMore":false,"items":[{"id":%q,"email":null,"fullName":"A L","companyName":"C"}]}`,
			strings.TrimPrefix(path, root+"/"))
		if diff := cmp.Diff(list, strings.TrimSpace(w.Body.String())); diff != "" {
			s.Error(diff)
		}

		s.want(s.do("DELETE", path, "", "If-Match", first), http.StatusPreconditionFailed)
		w = s.do("DELETE", path, "", "If-Match", latest)
		s.want(w, http.StatusOK)
		if w.Body.Len() > 0 || w.Header().Get("ETag") == "" {
			s.Errorf("DELETE is answered with %q and %v", w.Body, w.Header())
		}
		nobody := root + "/" + newID("nobody")
		for _, gone := range []string{path, nobody} {
			s.want(s.do("DELETE", gone, ""), http.StatusNotFound)
			s.want(s.do("GET", gone, ""), http.StatusNotFound)
			s.want(s.do("POST", gone+"/update-email", `{"email":null}`), http.StatusNotFound)
		}
	})
}

func TestAcceptance2AContactAndItsEventsAreOneWrite(t *testing.T) {
	onEachStore(t, func(s *service) {
		path, _ := s.add(ada)
		made := s.documents(path)
		if len(made) != 2 || made[0].LSN != made[1].LSN {
			s.Fatalf("creating made %d documents: %+v", len(made), made)
		}

		// Of many who write at the same moment some lose: each winner has left one event, and nobody else has.
		var writers sync.WaitGroup
		var won atomic.Int64
		for n := range 8 {
			writers.Go(func() {
				for range 5 {
					w := s.do("POST", path+"/update-description", fmt.Sprintf(`{"description":"%d"}`, n))
					switch w.Code {
					case http.StatusNoContent:
						won.Add(1)
					case http.StatusPreconditionFailed:
					default:
						s.Errorf("got %d %s", w.Code, w.Body)
					}
				}
			})
		}
		writers.Wait()
		events := s.events(path)
		if len(events) != int(won.Load())+1 {
			s.Errorf("%d events of %d updates", len(events), won.Load())
		}
		for i, e := range events {
			if e.Seq != uint64(i+1) {
				s.Errorf("event %d has number %d", i+1, e.Seq)
			}
		}
	})
}

func TestAcceptance3OneEventPerAction(t *testing.T) {
	onEachStore(t, func(s *service) {
		path, _ := s.add(`{"firstName":"Ada","lastName":"Lovelace","description":"final","companyName":"Engines"}`)
		var created struct{ Contact Contact }
		if err := json.Unmarshal(s.events(path)[0].Data, &created); err != nil ||
			created.Contact.Description != "final" {
			s.Errorf("the created event has %+v, %v", created.Contact, err)
		}
		want := []string{"ContactCreatedEvent"}
		for _, step := range []struct{ method, path, body, action string }{
			{"POST", "/update-name", `{"firstName":"A","lastName":"L"}`, "ContactNameUpdatedEvent"},
			{"POST", "/update-description", `{"description":"d"}`, "ContactDescriptionUpdatedEvent"},
			{"POST", "/update-email", `{"email":"a@b"}`, "ContactEmailUpdatedEvent"},
			{"POST", "/update-company", `{"companyName":"C"}`, "ContactCompanyUpdatedEvent"},
			{"DELETE", "", "", "ContactDeletedEvent"},
		} {
			w := s.do(step.method, path+step.path, step.body)
			if w.Code >= http.StatusBadRequest {
				s.Fatalf("%s: %d %s", step.action, w.Code, w.Body)
			}
			want = append(want, step.action)
			if diff := cmp.Diff(want, actions(s.events(path))); diff != "" {
				s.Errorf("after %s: %s", step.action, diff)
			}
		}
		s.want(s.do("DELETE", path, ""), http.StatusNotFound) // and no second event
		if n := len(s.documents(path)); n != len(want)+1 {
			s.Errorf("%d documents, want the contact, which stays, and %d events", n, len(want))
		}
		if body := s.do("GET", root, "").Body.String(); strings.TrimSpace(body) != `{"hasMore":false,"items":[]}` {
			s.Errorf("the list still has %s", body)
		}
	})
}

func TestAcceptance4EventsExpireAndContactsDoNot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		contacts, _ := inStore(t)
		s := newService(t, contacts)
		s.contacts.units.EventTTL = 2 * time.Minute
		path, _ := s.add(ada)
		s.want(s.do("POST", path+"/update-email", `{"email":"a@b"}`), http.StatusNoContent)
		for _, c := range s.documents(path) {
			ttl := -1
			if !bytes.Contains(c.Body, []byte(`"type":"contact"`)) {
				ttl = 120
			}
			if !bytes.Contains(c.Body, fmt.Appendf(nil, `"ttl":%d,`, ttl)) {
				t.Errorf("want a ttl of %d in %s", ttl, c.Body)
			}
		}
		time.Sleep(time.Minute)
		if got := len(s.documents(path)); got != 3 {
			t.Errorf("%d documents after a minute, want 3", got)
		}
		time.Sleep(2 * time.Minute)
		if left := s.documents(path); len(left) != 1 || contacts.Count() != 1 {
			t.Errorf("after three minutes there are %d documents, and %d in the store", len(left), contacts.Count())
		}
		s.want(s.do("GET", path, ""), http.StatusOK)
	})
}
