package webhook_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/outbox/webhookpub"
	"github.com/millrace/changefeed/trigger/webhook"
)

// orders is a batch of an upsert and a delete.
func orders() *feed.Batch {
	b := &feed.Batch{
		LeaseToken: "-1F", Range: feed.Range{Max: "1F"}, Instance: "büro 1", Epoch: 7, Attempt: 2,
		Changes: []feed.Change{
			{LSN: 5, ID: "1/ü", Time: time.Unix(1000, 0).UTC(), Body: []byte(`{"id":"1/ü","t":"<&>"}`)},
			{LSN: 6, ID: "2", Op: feed.OpDelete, Time: time.Unix(1001, 0).UTC(), Expired: true},
			{LSN: 7, ID: "3", Time: time.Unix(1002, 0).UTC(), Body: []byte("{\"id\":\n\"3\"}")},
		},
	}
	for i := range b.Changes {
		b.Changes[i].PartitionKey = feed.Key("Oslo")
	}
	return b
}

// received is a request with its body.
type received struct {
	*http.Request

	body string
}

// receiver answers each request with a status, a type and a body.
func receiver(t *testing.T, answer http.HandlerFunc) (url string, requests <-chan received) {
	t.Helper()
	all := make(chan received, 9)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		all <- received{r, string(body)}
		answer(w, r)
	}))
	t.Cleanup(server.Close)
	return server.URL, all
}

func handler(t *testing.T, url string, o webhook.Options) *webhook.Handler {
	t.Helper()
	h, err := webhook.New(url, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.Close)
	return h
}

func accept(http.ResponseWriter, *http.Request) {}

func TestARequestHasTheChangesInItsForm(t *testing.T) {
	const (
		meta1 = `{"lsn":5,"time":"1970-01-01T00:16:40Z","op":"upsert","id":"1/ü","key":["Oslo"],"range":"-1F","document":{"id":"1/ü","t":"<&>"}}`
		meta2 = `{"lsn":6,"time":"1970-01-01T00:16:41Z","op":"delete","id":"2","key":["Oslo"],"range":"-1F","expired":true}`
		meta3 = `{"lsn":7,"time":"1970-01-01T00:16:42Z","op":"upsert","id":"3","key":["Oslo"],"range":"-1F","document":{"id":"3"}}`
	)
	withoutDelete := orders()
	withoutDelete.Changes = append(withoutDelete.Changes[:1], withoutDelete.Changes[2])
	for _, tt := range []struct {
		o          webhook.Options
		b          *feed.Batch
		kind, want string
	}{
		{webhook.Options{}, withoutDelete, "application/json", `[{"id":"1/ü","t":"<&>"},{"id":"3"}]`},
		{webhook.Options{Meta: true}, orders(), "application/json", "[" + meta1 + "," + meta2 + "," + meta3 + "]"},
		{
			webhook.Options{Form: webhook.FormLines, Meta: true},
			orders(), "application/x-ndjson",
			meta1 + "\n" + meta2 + "\n" + meta3 + "\n",
		},
		{
			webhook.Options{Form: webhook.FormCloudEvents, Source: "/shop/orders"},
			orders(),
			"application/cloudevents-batch+json",
			`[{"specversion":"1.0","id":"5-%5B%22Oslo%22%5D-1%2F%C3%BC","source":"/shop/orders","type":"changefeed.upsert",` +
				`"subject":"1/ü","time":"1970-01-01T00:16:40Z","partitionkey":"[\"Oslo\"]","sequence":"5",` +
				`"datacontenttype":"application/json","data":{"id":"1/ü","t":"<&>"}},` +
				`{"specversion":"1.0","id":"6-%5B%22Oslo%22%5D-2","source":"/shop/orders","type":"changefeed.delete",` +
				`"subject":"2","time":"1970-01-01T00:16:41Z","partitionkey":"[\"Oslo\"]","sequence":"6","expired":true},` +
				`{"specversion":"1.0","id":"7-%5B%22Oslo%22%5D-3","source":"/shop/orders","type":"changefeed.upsert",` +
				`"subject":"3","time":"1970-01-01T00:16:42Z","partitionkey":"[\"Oslo\"]","sequence":"7",` +
				`"datacontenttype":"application/json","data":{"id":"3"}}]`,
		},
		{webhook.Options{}, &feed.Batch{}, "application/json", "[]"},
	} {
		url, requests := receiver(t, accept)
		if err := handler(t, url, tt.o).Handle(t.Context(), tt.b); err != nil {
			t.Error(err)
		}
		r := <-requests
		if r.body != tt.want || r.Header.Get("Content-Type") != tt.kind || r.Method != http.MethodPost {
			t.Errorf("%v: got a %s of %s\n%s\nwant %s\n%s", tt.o, r.Method, r.Header.Get("Content-Type"), r.body,
				tt.kind, tt.want)
		}
		if tt.o.Form != webhook.FormLines && !json.Valid([]byte(r.body)) {
			t.Errorf("%v: the body is no JSON", tt.o)
		}
	}
}

func TestTheHeadersDescribeTheBatch(t *testing.T) {
	url, requests := receiver(t, accept)
	secret := []byte("0123456789")
	h := handler(t, url, webhook.Options{
		Meta: true, Secret: secret, Header: http.Header{"Authorization": {"Bearer x"}, "User-Agent": {"shop"}},
	})
	ids := map[string]bool{}
	for attempt := range 2 {
		b := orders()
		b.Attempt, b.Range, b.LeaseToken = attempt+1, feed.FullRange(), "-FF" // after a merge, for one
		if err := h.Handle(t.Context(), b); err != nil {
			t.Fatal(err)
		}
		r := <-requests
		for name, want := range map[string]string{
			"Changefeed-Lease": "-FF", "Changefeed-Range": "-FF", "Changefeed-Instance": "b%C3%BCro%201",
			"Changefeed-Epoch": "7", "Changefeed-Attempt": fmt.Sprint(attempt + 1), "Authorization": "Bearer x",
			"User-Agent": "shop",
		} {
			if got := r.Header.Get(name); got != want {
				t.Errorf("%s is %q, want %q", name, got, want)
			}
		}
		ids[r.Header.Get("Webhook-Id")] = true
		if err := webhookpub.VerifyStandard(r.Header, []byte(r.body), secret); err != nil {
			t.Error(err)
		}
	}
	b := orders()
	b.Changes = b.Changes[:2]
	if err := h.Handle(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	if id := (<-requests).Header.Get("Webhook-Id"); len(ids) != 1 || ids[id] || ids[""] {
		t.Errorf("the same batch has the ids %v, and a part of it %q", ids, id)
	}
}

func TestAnAnswerSaysWhatIsDone(t *testing.T) {
	for _, tt := range []struct {
		name, status, kind, body, after string
		want                            string
	}{
		{name: "done", status: "200", want: "done"},
		{name: "accepted", status: "204", want: "done"},
		{name: "another body", status: "200", kind: "text/plain", body: `{"done":1,"error":"x"}`, want: "done"},
		{name: "JSON of another kind", status: "200", kind: "application/json", body: `[1]`, want: "done"},
		{
			name: "no JSON", status: "200", kind: "application/json", body: `{"done`,
			want: "failed: webhook: the answer is wrong: want JSON, in {\"done",
		},
		{name: "no text", status: "200", kind: "application/json", body: " ", want: "done"},
		{name: "all", status: "200", kind: "application/json", body: `{"done":3}`, want: "done"},
		{
			name: "none", status: "200", kind: "application/json", body: `{"done":0}`,
			want: "failed: the program has failed and says no reason",
		},
		{
			name: "none, and why", status: "200", kind: "application/json", body: `{"done":0,"error":"full"}`,
			want: "failed: full",
		},
		{
			name: "long", status: "200", kind: "application/json",
			body: `{"items":[{"index":1,"error":"` + strings.Repeat("x", 100<<10) + `"}]}`,
			want: "done 0, items 1: " + strings.Repeat("x", 8<<10) + ", poison false, outage false, after 0s: <nil>",
		},
		{
			name: "too long", status: "200", kind: "application/json", body: strings.Repeat(" ", 16<<20+1),
			want: "failed: webhook: read the answer 200 OK: it is longer than 16 MB",
		},
		{name: "other members", status: "200", kind: "application/json", body: `{"ok":true}`, want: "done"},
		{
			name: "items", status: "200", kind: "application/json; charset=utf-8",
			body: `{"items":[{"index":1,"error":"no"},{"index":2,"error":"never","poison":true}]}`,
			want: "done 0, items 1: no, poison false; 2: never, poison true, outage false, after 0s: <nil>",
		},
		{
			name: "the first", status: "200", kind: "application/json", body: `{"done":2,"error":"full"}`,
			want: "done 2, items , outage false, after 0s: full",
		},
		{
			name: "more than all", status: "200", kind: "application/json", body: `{"done":4}`,
			want: "failed: webhook: the answer is wrong: done is 4, and the batch has 3 changes: want fewer, because one " +
				"has failed, in {\"done\":4}",
		},
		{
			name: "an index too many", status: "200", kind: "application/json", body: `{"items":[{"index":3}]}`,
			want: "failed: webhook: the answer is wrong: index is 3: the batch has 3 changes, in " +
				"{\"items\":[{\"index\":3}]}",
		},
		{
			name: "an outage without a reason", status: "200", kind: "application/json", body: `{"outage":true}`,
			want: "done 0, items , outage true, after 0s: the program has failed and says no reason",
		},
		{name: "bad request", status: "400", body: "no city", want: `poison: webhook: answer 400 Bad Request: "no city"`},
		{name: "too large", status: "413", want: "poison: webhook: answer 413 Request Entity Too Large"},
		{name: "unprocessable", status: "422", want: "poison: webhook: answer 422 Unprocessable Entity"},
		{name: "rights", status: "403", want: "done 0, items , outage true, after 0s: webhook: answer 403 Forbidden"},
		{name: "not there", status: "404", want: "done 0, items , outage true, after 0s: webhook: answer 404 Not Found"},
		{
			name: "busy", status: "429", after: "7",
			want: "done 0, items , outage true, after 7s: webhook: answer 429 Too Many Requests",
		},
		{
			name: "down for ever", status: "503", after: "99999999999999999999",
			want: "done 0, items , outage true, after 10m0s: webhook: answer 503 Service Unavailable",
		},
		{
			name: "down", status: "503", after: "86400",
			want: "done 0, items , outage true, after 10m0s: webhook: answer 503 Service Unavailable",
		},
		{
			name: "down until a time that is over", status: "503", after: "Mon, 01 Jan 2001 00:00:00 GMT",
			want: "done 0, items , outage true, after 0s: webhook: answer 503 Service Unavailable",
		},
		{name: "defect", status: "500", want: "failed: webhook: answer 500 Internal Server Error"},
		{
			name: "defect with a pause", status: "500", after: "3",
			want: "done 0, items , outage false, after 3s: webhook: answer 500 Internal Server Error",
		},
		{
			name: "moved", status: "307",
			want: "failed: webhook: answer 307 Temporary Redirect: redirects are not followed",
		},
	} {
		url, requests := receiver(t, func(w http.ResponseWriter, r *http.Request) {
			for name, value := range map[string]string{
				"Content-Type": tt.kind, "Retry-After": tt.after, "Location": "/elsewhere",
			} {
				if value != "" {
					w.Header().Set(name, value)
				}
			}
			var status int
			fmt.Sscan(tt.status, &status)
			w.WriteHeader(status)
			io.WriteString(w, tt.body)
		})
		if got := describe(handler(t, url, webhook.Options{Meta: true}).Handle(t.Context(), orders())); got != tt.want {
			t.Errorf("%s:\ngot  %s\nwant %s", tt.name, got, tt.want)
		}
		if r := <-requests; r.URL.Path != "/" || len(requests) > 0 {
			t.Errorf("%s: a redirect was followed", tt.name)
		}
	}
}

// describe returns all that an outcome says.
func describe(err error) string {
	f, ok := errors.AsType[*feed.Failure](err)
	switch {
	case err == nil:
		return "done"
	case feed.IsPoison(err):
		return "poison: " + err.Error()
	case !ok:
		return "failed: " + err.Error()
	}
	var items []string
	for i := range 9 {
		if item := f.Items[i]; item != nil {
			items = append(items, fmt.Sprintf("%d: %v, poison %v", i, item, feed.IsPoison(item)))
		}
	}
	return fmt.Sprintf("done %d, items %s, outage %v, after %v: %v", f.Done, strings.Join(items, "; "), f.Outage,
		f.After, f.Err)
}

// A pause counts beside poison too: without a limit the batch comes again.
func TestARetryThatCannotHelpWaitsToo(t *testing.T) {
	url, _ := receiver(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "7")
		w.WriteHeader(http.StatusConflict)
	})
	err := handler(t, url, webhook.Options{}).Handle(t.Context(), orders())
	if f, ok := errors.AsType[*feed.Failure](err); !ok || f.After != 7*time.Second || f.Outage || !feed.IsPoison(err) {
		t.Errorf("got %#v, want poison after 7s", err)
	}
}

// A long list of failed changes counts as a short one does: a part of it would count for nothing, and the batch would
// be done. A list without an end is a failure.
func TestALongListOfFailuresCounts(t *testing.T) {
	const item = `{"index":1,"error":"%s"}`
	for size, want := range map[int]string{
		100 << 10: "done 0, items 1: ",
		17 << 20:  "failed: webhook: read the answer",
	} {
		url, _ := receiver(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprintf(w, `{"items":[`+item+`]}`, strings.Repeat("x", size))
		})
		err := handler(t, url, webhook.Options{}).Handle(t.Context(), orders())
		if got := describe(err); !strings.HasPrefix(got, want) {
			t.Errorf("%d bytes: got %.100s, want %s", size, got, want)
		}
	}
}

// Changes of a transaction have the same LSN: a part of them is not the same batch.
func TestAPartOfATransactionHasItsOwnID(t *testing.T) {
	url, requests := receiver(t, accept)
	h := handler(t, url, webhook.Options{Meta: true})
	ids := map[string]bool{}
	for n := range 3 {
		b := orders()
		for i := range b.Changes {
			b.Changes[i].LSN = 5
		}
		b.Changes = b.Changes[:n+1]
		if err := h.Handle(t.Context(), b); err != nil {
			t.Fatal(err)
		}
		ids[(<-requests).Header.Get("Webhook-Id")] = true
	}
	if len(ids) != 3 {
		t.Errorf("three batches have the ids %v", ids)
	}
}

// Requests at the same time have a header each.
func TestTheHeaderOfTheOptionsStaysAsItIs(t *testing.T) {
	url, _ := receiver(t, accept)
	header := http.Header{"Authorization": {"Bearer x"}}
	if err := handler(t, url, webhook.Options{Header: header}).Handle(t.Context(), orders()); err != nil {
		t.Fatal(err)
	}
	if len(header) != 1 {
		t.Errorf("a request has changed the header of the options: %v", header)
	}
}

// A receiver that does not answer in time has failed; one that is not there is an outage; a lost lease ends a request.
func TestAReceiverWithoutAnAnswer(t *testing.T) {
	url, requests := receiver(t, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	err := handler(t, url, webhook.Options{Timeout: 20 * time.Millisecond}).Handle(t.Context(), orders())
	if got := describe(err); got != "failed: webhook: no answer within 20ms" {
		t.Error(got)
	}
	<-requests
	ctx, cancel := context.WithCancelCause(t.Context())
	go func() {
		<-requests
		cancel(feed.ErrLeaseLost)
	}()
	if err := handler(t, url, webhook.Options{}).Handle(ctx, orders()); !errors.Is(err, feed.ErrLeaseLost) {
		t.Errorf("got %v, want lease lost", err)
	}
	err = handler(t, "http://127.0.0.1:1/?key=secret", webhook.Options{}).Handle(t.Context(), orders())
	if got := describe(err); !strings.Contains(got, "outage true") || strings.Contains(got, "secret") {
		t.Error(got)
	}
}

func TestWrongOptionsAreRefused(t *testing.T) {
	for _, tt := range []struct {
		url, want string
		o         webhook.Options
	}{
		{"ftp://example.com/x?key=secret", "URL is ftp://example.com/x: want a URL such as https://", webhook.Options{}},
		{"https:///x", "URL is https:///x: want", webhook.Options{}},
		{":", "URL is not a URL: want", webhook.Options{}},
		{"https://example.com", `Form is "xml": want array, lines or cloudevents`, webhook.Options{Form: "xml"}},
		{"https://example.com", "Timeout is -1s: want a positive duration", webhook.Options{Timeout: -time.Second}},
		{"https://example.com", "Secret is empty", webhook.Options{Secret: []byte{}}},
	} {
		if _, err := webhook.New(tt.url, tt.o); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got %v, want %s", tt.url, err, tt.want)
		}
	}
}

func ExampleNew() {
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		fmt.Println(r.Header.Get("Changefeed-Attempt"), string(body))
		w.Header().Set("Content-Type", "application/json")
		io.WriteString(w, `{"items":[{"index":0,"error":"no such street"}]}`)
	}))
	defer receiver.Close()
	handler, err := webhook.New(receiver.URL, webhook.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(handler.Handle(context.Background(), &feed.Batch{
		LeaseToken: "-FF", Range: feed.FullRange(), Attempt: 1,
		Changes: []feed.Change{{LSN: 1, ID: "1", PartitionKey: feed.Key("Oslo"), Body: []byte(`{"id":"1"}`)}},
	}))
	// Output:
	// 1 [{"id":"1"}]
	// no such street (1 change failed)
}
