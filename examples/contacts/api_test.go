package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/outbox"
)

func TestEveryRefusalIsAProblemDocument(t *testing.T) {
	contacts, _ := inStore(t)
	s := newService(t, contacts)
	path, _ := s.add(ada)
	for _, test := range []struct {
		name, method, path, body string
		headers                  []string
		status                   int
		want                     string // in the answer
	}{
		{
			"each property once", "POST", root, `{"firstName":"","email":"x","companyName":"C"}`, nil, 400,
			`"errors":[{"detail":"must not be blank","pointer":"#/firstName"},{"detail":"must not be blank","pointer":"#/lastName"},{"detail":"must be an email address, or null","pointer":"#/email"}]`,
		},
		{"unknown member", "POST", root, `{"nickname":"A"}`, nil, 400, `unknown field \"nickname\"`},
		{
			"of the wrong type", "POST", root, `{"firstName":7}`, nil, 400,
			`{"detail":"must not be a number","pointer":"#/firstName"}`,
		},
		{"not JSON", "POST", root, `{"firstName"`, nil, 400, "must be a JSON object"},
		{"an array", "POST", root, `[]`, nil, 400, "must be a JSON object"},
		{"null", "POST", path + "/update-description", `null`, nil, 400, "must be a JSON object"},
		{
			"a condition without an ETag", "POST", path + "/update-description", `{"description":"d"}`,
			[]string{"If-Match", " , "},
			400, `"parameter":"If-Match"`,
		},
		{"two objects", "POST", root, ada + ada, nil, 400, "has more after it"},
		{
			"too large", "POST", root, `{"firstName":"` + strings.Repeat("x", mostBody) + `"}`, nil, 413,
			"at most 65536 bytes",
		},
		{"a form", "POST", root, ada, []string{"Content-Type", "text/plain"}, 415, "must be application/json"},
		{"empty id", "GET", root + "/00000000-0000-0000-0000-000000000000", "", nil, 400, `"parameter":"id"`},
		{"no id", "GET", root + "/ada", "", nil, 404, `"title":"Not Found","status":404`},
		{"long ETag", "GET", path, "", []string{"ETag", strings.Repeat("x", 51)}, 400, `"parameter":"ETag"`},
		{
			"long idempotency key", "POST", root, ada,
			[]string{"Idempotency-Key", strings.Repeat("x", 256)},
			400,
			`"parameter":"Idempotency-Key"`,
		},
		{"page of nothing", "GET", root + "?pageSize=0", "", nil, 400, `"parameter":"pageSize"`},
		{"page of too much", "GET", root + "?pageSize=1001", "", nil, 400, "from 1 to 1000"},
		{
			"continuation of something else", "GET", root, "",
			[]string{continuationHeader, "x"},
			400,
			`"parameter":"X-Continuation-Token"`,
		},
		{
			"continuation that was altered", "GET", root, "",
			[]string{continuationHeader, cursor{{Max: "FF", Token: "nonsense"}}.String()},
			400,
			`"parameter":"X-Continuation-Token"`,
		},
		{
			"continuation of no keys", "GET", root, "",
			[]string{continuationHeader, cursor{{Min: "ZZ", Max: "A"}}.String()},
			400,
			`"parameter":"X-Continuation-Token"`,
		},
		{"another method", "PUT", path, "", nil, 405, `"detail":"this path takes DELETE, GET, HEAD"`},
		{
			"another path", "GET", "/api/contract", "", nil, 404,
			`"detail":"there is nothing at this path","instance":"/api/contract"`,
		},
		{
			"another site", "POST", root, ada,
			[]string{"Sec-Fetch-Site", "cross-site"},
			403,
			`"detail":"a page of another site may change nothing here"`,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := s.do(test.method, test.path, test.body, test.headers...)
			if w.Code != test.status || !strings.Contains(w.Body.String(), test.want) {
				t.Errorf("got %d %s, want %d with %s", w.Code, w.Body, test.status, test.want)
			}
			var p problem
			if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil || p.Status != test.status ||
				p.Title != http.StatusText(test.status) ||
				w.Header().Get("Content-Type") != "application/problem+json" {
				t.Errorf("got %s %s, want a problem document", w.Header().Get("Content-Type"), w.Body)
			}
			if test.status == http.StatusMethodNotAllowed && w.Header().Get("Allow") != "DELETE, GET, HEAD" {
				t.Errorf("Allow is %q", w.Header().Get("Allow"))
			}
		})
	}
	if n := len(s.documents(path)); n != 2 {
		t.Errorf("%d documents are left, want 2 as before", n)
	}
}

// refusing is a store that refuses every write.
type refusing struct {
	store
	err error
}

func (s refusing) Commit(ctx context.Context, key feed.PartitionKey, writes []feed.Write) ([]feed.Result, error) {
	if writes[0].Op == feed.WriteRead {
		return s.store.Commit(ctx, key, writes)
	}
	return nil, s.err
}

func TestWhatTheStoreRefusesHasItsCode(t *testing.T) {
	synctest.Test(t, refusalsHaveTheirCodes)
}

func refusalsHaveTheirCodes(t *testing.T) {
	contacts, _ := inStore(t)
	for _, test := range []struct {
		err        error
		status     int
		retryAfter string
	}{
		{&feed.ThrottledError{After: 2500 * time.Millisecond}, 429, "3"},
		{feed.ErrThrottled, 429, "1"},
		{feed.ErrConflict, 409, ""},
		{feed.ErrForbidden, 500, ""},
		{errors.New("connection reset"), 503, "1"},
		{errors.New("bad gateway"), 503, "1"},
		{context.Canceled, 499, ""},
	} {
		s := newService(t, refusing{contacts, test.err})
		w := s.do("POST", root, ada)
		if w.Code != test.status || w.Header().Get("Retry-After") != test.retryAfter {
			t.Errorf("%v: got %d, Retry-After %q, want %d, %q", test.err, w.Code, w.Header().Get("Retry-After"),
				test.status, test.retryAfter)
		}
		if test.status >= 500 && strings.Contains(w.Body.String(), test.err.Error()) {
			t.Errorf("%v is shown to the client", test.err)
		}
	}
}

func TestARepeatedPostMakesNoSecondContact(t *testing.T) {
	onEachStore(t, func(s *service) {
		key := []string{"Idempotency-Key", "order 66/é"}
		path, etag := s.add(ada, key...)
		if again, same := s.add(ada, key...); again != path || same != etag {
			s.Errorf("the repeat is answered with %s %s, the first with %s %s", again, same, path, etag)
		}
		s.want(s.do("POST", root, strings.Replace(ada, "Ada", "Bob", 1), key...), http.StatusUnprocessableEntity)
		s.want(s.do("POST", path+"/update-email", `{"email":"a@b"}`), http.StatusNoContent)
		if again, newer := s.add(ada, key...); again != path || newer != "" {
			s.Errorf("after an update the repeat is answered with %s %s, want %s without an ETag, for the client "+
				"does not know that version", again, newer, path)
		}
		s.want(s.do("DELETE", path, ""), http.StatusOK)
		if again, newer := s.add(ada, key...); again != path || newer != "" {
			s.Errorf("after the delete the repeat is answered with %s %s, want %s without an ETag as the first time",
				again, newer, path)
		}
		s.want(s.do("GET", path, ""), http.StatusNotFound) // the repeat has not brought it back
		if diff := cmp.Diff([]string{"ContactCreatedEvent", "ContactEmailUpdatedEvent", "ContactDeletedEvent"},
			actions(s.events(path))); diff != "" {
			s.Error(diff)
		}
		if other, _ := s.add(ada); other == path {
			s.Error("a request without a key has the id of another one")
		}
	})
}

// deaf is a store whose first answers to writes are lost.
type deaf struct {
	store
	lose int
}

func (s *deaf) Commit(ctx context.Context, key feed.PartitionKey, writes []feed.Write) ([]feed.Result, error) {
	results, err := s.store.Commit(ctx, key, writes)
	if writes[0].Op != feed.WriteRead && s.lose > 0 {
		s.lose--
		return nil, errors.New("connection reset")
	}
	return results, err
}

func TestALostAnswerDoublesNothing(t *testing.T) {
	contacts, _ := inStore(t)
	lossy := &deaf{contacts, 1}
	s := newService(t, lossy)
	path, etag := s.add(ada)
	lossy.lose = 1
	w := s.do("POST", path+"/update-email", `{"email":"a@b"}`, "If-Match", etag)
	s.want(w, http.StatusNoContent)
	s.want(s.do("GET", path, "", "If-None-Match", w.Header().Get("ETag")), http.StatusNotModified)
	if diff := cmp.Diff([]string{"ContactCreatedEvent", "ContactEmailUpdatedEvent"},
		actions(s.events(path))); diff != "" {
		t.Error(diff)
	}
}

func TestAnOutcomeThatIsUnknownIsReportedAsSuch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		contacts, _ := inStore(t)
		lossy := &deaf{contacts, 0}
		s := newService(t, lossy)
		path, etag := s.add(ada)
		lossy.lose = 1000
		w := s.do("POST", path+"/update-email", `{"email":"a@b"}`, "If-Match", etag)
		s.want(w, http.StatusServiceUnavailable)
		if text := w.Body.String(); !strings.Contains(text, "unknown whether this was done") ||
			w.Header().Get("Retry-After") == "" {
			t.Errorf("answer %s with headers %v", text, w.Header())
		}
	})
}

// readAll reads the list page by page, and calls a function with each continuation.
func (s *service) readAll(size int, between func(continuation string)) (ids []string) {
	s.Helper()
	var continuation []string
	for pages := 0; ; pages++ {
		w := s.do("GET", fmt.Sprintf("%s?pageSize=%d", root, size), "", continuation...)
		s.want(w, http.StatusOK)
		var p Page
		if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil {
			s.Fatal(err)
		}
		next := w.Header().Get(continuationHeader)
		if pages > 200 || len(p.Items) > size || p.HasMore && len(p.Items) < size || p.HasMore == (next == "") ||
			pages > 0 && len(p.Items) == 0 {
			s.Fatalf("page %d has %d contacts of %d, more: %v, continuation %q", pages, len(p.Items), size, p.HasMore,
				next)
		}
		for _, c := range p.Items {
			ids = append(ids, c.ID)
		}
		if !p.HasMore {
			return ids
		}
		continuation = []string{continuationHeader, next}
		between(next)
	}
}

func TestAListIsReadPageByPage(t *testing.T) {
	onEachStore(t, func(s *service) {
		if ids := s.readAll(10, func(string) {}); len(ids) > 0 {
			s.Errorf("an empty container lists %v", ids)
		}
		var want []string
		for n := range 60 {
			path, _ := s.add(strings.Replace(ada, "Ada", fmt.Sprint("Ada", n), 1))
			for range n % 4 {
				s.want(s.do("POST", path+"/update-email", `{"email":"a@b"}`), http.StatusNoContent)
			}
			if n%5 == 0 {
				s.want(s.do("DELETE", path, ""), http.StatusOK)
				continue
			}
			want = append(want, strings.TrimPrefix(path, root+"/"))
		}
		slices.Sort(want)
		for _, size := range []int{1, 7, 47, 48, 49, 1000} {
			got := s.readAll(size, func(string) {})
			slices.Sort(got)
			if diff := cmp.Diff(want, got); diff != "" {
				s.Errorf("pages of %d: %s", size, diff)
			}
		}
		// What changes while the list is read may come again, and nothing is left out.
		updates := 0
		got := s.readAll(7, func(string) {
			s.want(s.do("POST", root+"/"+want[updates]+"/update-email", `{"email":"c@d"}`), http.StatusNoContent)
			updates++
		})
		slices.Sort(got)
		if diff := cmp.Diff(want, slices.Compact(got)); diff != "" || updates < 5 {
			s.Errorf("with %d updates meanwhile: %s", updates, diff)
		}
	})
}

func TestAListOutlivesSplitsAndMerges(t *testing.T) {
	contacts, _ := inStore(t)
	s := newService(t, contacts)
	var want []string
	for range 60 {
		path, _ := s.add(ada)
		want = append(want, strings.TrimPrefix(path, root+"/"))
	}
	pages := 0
	got := s.readAll(7, func(continuation string) {
		pages++
		at, err := parseCursor(continuation)
		if err != nil {
			t.Fatal(err)
		}
		read := contacts.PartitionAt(at[0].Min) // in which the list is
		all, err := contacts.Partitions(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if pages%3 == 0 {
			_, err = contacts.Merge(t.Context(), all[0].ID, all[1].ID)
		} else {
			_, err = contacts.Split(t.Context(), read.ID)
		}
		if err != nil {
			t.Fatal(err)
		}
	})
	slices.Sort(want)
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestWhichETagsMatch(t *testing.T) {
	for _, test := range []struct {
		list string
		weak bool
		want bool
	}{
		{`"1"`, false, true},
		{`"2"`, false, false},
		{`"2", "1"`, false, true},
		{`"2","3"`, false, false},
		{`*`, false, true},
		{`W/"1"`, true, true},
		{`W/"1"`, false, false},
		{``, false, false},
	} {
		if got := parseTags(test.list, test.weak).Have(`"1"`); got != test.want {
			t.Errorf("%s: got %v", test.list, got)
		}
	}
}

func TestAUnitWritesWhatItHasTracked(t *testing.T) {
	onEachStore(t, func(s *service) {
		ctx, on := s.Context(), s.contacts.store
		bare := func(id string) *outbox.Doc[*Contact] {
			return &outbox.Doc[*Contact]{ID: id, PartitionKey: id, Type: contactType, Data: &Contact{ID: id}}
		}
		commit := func(track func(u *outbox.Unit)) error {
			u := outbox.NewUnit(on, outbox.Options{})
			track(u)
			return u.Commit(ctx)
		}
		fine := func(name string, err error, id string, documents int) {
			if got := len(s.documents(root + "/" + id)); err != nil || got != documents {
				s.Errorf("%s: %v and %d documents, want %d", name, err, got, documents)
			}
		}
		one := bare("one")
		fine("nothing", commit(func(*outbox.Unit) {}), "one", 0)
		fine("a contact without events", commit(func(u *outbox.Unit) { u.Create(one) }), "one", 1)
		fine("unmodified", commit(func(u *outbox.Unit) { u.Keep(one) }), "one", 1)
		fine("tracked twice", commit(func(u *outbox.Unit) { u.Replace(one); u.Replace(one) }), "one", 1)
		one.Data.SetEmail(nil)
		fine("with an event", commit(func(u *outbox.Unit) { u.Replace(one) }), "one", 2)

		stale := bare("one")
		stale.ETag = `"stale"`
		eventful := bare("one")
		eventful.ETag = `"stale"`
		eventful.Data.SetEmail(nil)
		for name, test := range map[string]struct {
			err  error
			want error
		}{
			"a single write under an old ETag": {commit(func(u *outbox.Unit) {
				u.Replace(stale)
			}), feed.ErrPrecondition},
			"a batch under an old ETag": {commit(func(u *outbox.Unit) { u.Replace(eventful) }), feed.ErrPrecondition},
			"a contact that exists":     {commit(func(u *outbox.Unit) { u.Create(bare("one")) }), feed.ErrConflict},
			"a contact that does not":   {commit(func(u *outbox.Unit) { u.Replace(bare("two")) }), feed.ErrNotFound},
			"the delete of none":        {commit(func(u *outbox.Unit) { u.Delete(bare("two")) }), feed.ErrNotFound},
		} {
			if !errors.Is(test.err, test.want) || test.want == feed.ErrConflict &&
				errors.Is(test.err, feed.ErrPrecondition) {
				s.Errorf("%s: got %v, want %v", name, test.err, test.want)
			}
		}
		fine("after what was refused", nil, "one", 2)
		if _, err := s.contacts.loadContact(ctx, "two"); !errors.Is(err, feed.ErrNotFound) {
			s.Errorf("a read of none: %v", err)
		}
	})
}

func TestTheDescriptionHasTheRoutes(t *testing.T) {
	contacts, _ := inStore(t)
	s := newService(t, contacts)
	w := s.do("GET", "/openapi.json", "")
	s.want(w, http.StatusOK)
	var described struct {
		Paths      map[string]map[string]json.RawMessage
		Components struct {
			Schemas map[string]struct{ Properties map[string]json.RawMessage }
		}
	}
	if err := json.Unmarshal(w.Body.Bytes(), &described); err != nil {
		t.Fatal(err)
	}
	var got, want []string
	for path, operations := range described.Paths {
		for method := range operations {
			if method != "parameters" {
				got = append(got, strings.ToUpper(method)+" "+path)
			}
		}
	}
	for pattern := range (&api{}).listRoutes() {
		want = append(want, pattern)
	}
	slices.Sort(got)
	slices.Sort(want)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	for name, value := range map[string]any{
		"CreateContact": CreateContact{}, "UpdateName": UpdateName{}, "UpdateDescription": UpdateDescription{},
		"UpdateEmail":   UpdateEmail{},
		"UpdateCompany": UpdateCompany{}, "Contact": View{}, "Page": Page{},
	} {
		text, err := json.Marshal(value)
		if err != nil {
			t.Fatal(err)
		}
		var members map[string]json.RawMessage
		if err := json.Unmarshal(text, &members); err != nil {
			t.Fatal(err)
		}
		for member := range members {
			if described.Components.Schemas[name].Properties[member] == nil {
				t.Errorf("%s has no %s", name, member)
			}
		}
		if n := len(described.Components.Schemas[name].Properties); n != len(members) {
			t.Errorf("%s has %d members, want %d", name, n, len(members))
		}
	}
}

// Each process numbers its events anew.
func TestAPageOfAnEarlierProcessMissesNothing(t *testing.T) {
	j := newJournal()
	for i := range 10 {
		j.addEvent(received{Order: int64(i + 1)})
	}
	for id, want := range map[string]int{"": 10, "5": 10, "earlier.5": 10, j.since + ".5": 5, j.since + ".x": 10} {
		if events, _ := j.eventsAfter(j.orderOf(id)); len(events) != want {
			t.Errorf("Last-Event-ID %q: %d events, want %d", id, len(events), want)
		}
	}
}
