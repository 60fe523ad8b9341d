package webhookpub_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/proof/memnet"
	"github.com/millrace/changefeed/outbox"
	"github.com/millrace/changefeed/outbox/outboxtest"
	"github.com/millrace/changefeed/outbox/webhookpub"
)

const maxData = 256 << 10

var secret = []byte("a secret of the tests")

// receiver keeps what it gets, as often as it gets it.
type receiver struct {
	t *testing.T

	mu      sync.Mutex
	failing map[string]bool
	ways    map[string]string // of not accepting, by the id of a message
	all     []outboxtest.Received
}

func (r *receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	m, err := webhookpub.Receive(req, []byte("another secret"), secret)
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case err != nil && req.Context().Err() != nil: // the line was cut
	case err != nil:
		r.t.Errorf("Receive: %v", err)
	case len(m.Data) > maxData:
		http.Error(w, "too large", http.StatusRequestEntityTooLarge)
	case r.ways[m.ID] != "":
		way := r.ways[m.ID]
		delete(r.ways, m.ID)
		if way == "closes in mid-call" {
			panic(http.ErrAbortHandler)
		}
		status, _ := strconv.Atoi(way)
		w.Header().Set("Location", "/elsewhere")
		w.WriteHeader(status)
	case r.failing[m.ID]:
		delete(r.failing, m.ID)
		http.Error(w, "not now", http.StatusServiceUnavailable)
	default:
		r.all = append(r.all, outboxtest.Received{
			ID: m.ID, Key: m.Key, Attributes: maps.Collect(m.CloudEvent()), Trace: traceOf(req.Header),
			ContentType: outbox.ContentType, Data: m.Data,
		})
	}
}

// traceOf are the headers of W3C Trace Context.
func traceOf(h http.Header) map[string]string {
	trace := map[string]string{}
	for _, name := range []string{"traceparent", "tracestate"} {
		if value := h.Get(name); value != "" {
			trace[name] = value
		}
	}
	return trace
}

func (r *receiver) received(*testing.T) []outboxtest.Received {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]outboxtest.Received(nil), r.all...)
}

// misbehaviours are ways of a receiver not to accept a message.
func (r *receiver) misbehaviours() map[string]func(*testing.T, string) {
	all := map[string]func(*testing.T, string){}
	for _, way := range []string{"closes in mid-call", "307", "401", "404", "410", "429", "500", "504"} {
		all[way] = func(_ *testing.T, id string) {
			r.mu.Lock()
			defer r.mu.Unlock()
			if r.ways == nil {
				r.ways = map[string]string{}
			}
			r.ways[id] = way
		}
	}
	return all
}

func (r *receiver) fail(_ *testing.T, id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failing[id] = true
}

func TestTheSuiteHoldsInBothModes(t *testing.T) {
	t.Parallel()
	for name, structured := range map[string]bool{"binary": false, "structured": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			outboxtest.TestPublisher(t, func(t *testing.T) outboxtest.Broker {
				r, line := &receiver{t: t, failing: map[string]bool{}}, outboxtest.NewLine(t)
				server := httptest.NewServer(r)
				t.Cleanup(server.Close)
				return outboxtest.Broker{
					Publisher: func(t *testing.T) outbox.Publisher {
						return publisher(t, server.URL, webhookpub.Options{
							Structured: structured, Secret: secret, Transport: &http.Transport{
								DialContext:         line.Dial,
								MaxIdleConnsPerHost: 64,
							},
						})
					},
					Received:  r.received,
					Stop:      func(*testing.T) { line.Cut() },
					Stall:     func(*testing.T) { line.Stall() },
					Start:     func(*testing.T) { line.Mend() },
					Fail:      r.fail,
					Misbehave: r.misbehaviours(),
					MaxData:   maxData,
				}
			})
		})
	}
}

func publisher(t *testing.T, url string, o webhookpub.Options) *webhookpub.Publisher {
	t.Helper()
	p, err := webhookpub.New(url, o)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// event is one of those of a test.
var event = outbox.Message{
	ID: "1", Key: "Zoë", Action: "Done", Source: "/things", Seq: 7, Time: time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC),
	Data: []byte(`{"a" : "é"}`),
}

// request publishes the event, and gives what was sent.
func request(t *testing.T, o webhookpub.Options, at string) (req *http.Request, body []byte) {
	t.Helper()
	return requestOf(t, o, at, event)
}

// requestOf is request for any event.
func requestOf(t *testing.T, o webhookpub.Options, at string, m outbox.Message) (req *http.Request, body []byte) {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		req = r.Clone(context.WithoutCancel(r.Context()))
		body, _ = io.ReadAll(r.Body)
	}))
	defer server.Close()
	p := publisher(t, server.URL+at, o)
	defer p.Close()
	if n, err := p.Publish(t.Context(), []outbox.Message{m}); n != 1 || err != nil {
		t.Fatalf("Publish: %d, %v", n, err)
	}
	req.Body = io.NopCloser(bytes.NewReader(body))
	return req, body
}

// TestARequestIsWhatTheBindingSays compares both modes with the text of the HTTP binding.
func TestARequestIsWhatTheBindingSays(t *testing.T) {
	t.Parallel()
	mine := http.Header{"Authorization": {"Bearer x"}, "User-Agent": {"shop"}}
	req, body := request(t, webhookpub.Options{Header: mine}, "/events?code=1")
	want := map[string]string{
		"Content-Type": "application/json", "Authorization": "Bearer x", "User-Agent": "shop",
		"Changefeed-Signature": "",
		"Ce-Specversion":       "1.0", "Ce-Id": "1", "Ce-Source": "/things", "Ce-Type": "Done",
		"Ce-Subject": "Zo%C3%AB", "Ce-Partitionkey": "Zo%C3%AB",
		"Ce-Time": "2026-03-04T05:06:07Z", "Ce-Sequence": "00000000000000000007", "Ce-Traceparent": "",
	}
	for name, value := range want {
		if got := req.Header.Get(name); got != value {
			t.Errorf("header %s is %q, want %q", name, got, value)
		}
	}
	if req.Method != http.MethodPost || req.URL.String() != "/events?code=1" || string(body) != string(event.Data) ||
		len(mine) != 2 {
		t.Errorf("%s %s with the body %s, by the options %v", req.Method, req.URL, body, mine)
	}
	req, body = request(t, webhookpub.Options{Structured: true}, "")
	wantBody := `{"datacontenttype":"application/json","id":"1","partitionkey":"Zoë","sequence":"00000000000000000007","source":"/things",` +
		`"specversion":"1.0","subject":"Zoë","time":"2026-03-04T05:06:07Z","type":"Done","data":{"a" : "é"}}`
	if string(body) != wantBody || req.Header.Get("Content-Type") != "application/cloudevents+json" ||
		req.Header.Get("ce-id") != "" || req.UserAgent() != "changefeed" {
		t.Errorf("structured: %s\n%s\nwant\n%s", req.Header, body, wantBody)
	}
}

// TestAnAnswerSaysWhetherTheEventComesAgain has each kind of answer.
func TestAnAnswerSaysWhetherTheEventComesAgain(t *testing.T) {
	t.Parallel()
	for status, want := range map[int]string{
		200: "", 202: "", 204: "", 299: "",
		301: "again", 302: "again", 304: "again", 307: "again", 308: "again",
		401: "again", 403: "again", 404: "again", 405: "again", 407: "again", 408: "again", 410: "again", 421: "again",
		425: "again", 429: "again",
		500: "refused", 501: "refused", 502: "again", 503: "again", 504: "again", 599: "refused",
		400: "never", 402: "never", 409: "never", 413: "large", 415: "never", 422: "never", 451: "never", 499: "never",
	} {
		asked := 0
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			asked++
			w.Header().Set("Location", "/elsewhere")
			w.WriteHeader(status)
			if status != 204 && status != 304 {
				_, _ = w.Write([]byte(" because\xff " + strings.Repeat("x", 1<<20)))
			}
		}))
		p := publisher(t, server.URL+"/secret-in-the-url", webhookpub.Options{})
		n, err := p.Publish(t.Context(), []outbox.Message{event})
		got := "again"
		switch {
		case err == nil && n == 1:
			got = ""
		case errors.Is(err, outbox.ErrTooLarge) && feed.IsPoison(err):
			got = "large"
		case feed.IsPoison(err):
			got = "never"
		case errors.Is(err, outbox.ErrRefused):
			got = "refused"
		}
		if got != want || asked != 1 {
			t.Errorf("answer %d: %q after %d requests, want %q (%v)", status, got, asked, want, err)
		}
		if err != nil && (n != 0 || !strings.Contains(err.Error(), fmt.Sprint(status)) || len(err.Error()) > 400 ||
			strings.Contains(err.Error(), "secret-in")) {
			t.Errorf("answer %d: %d, %v", status, n, err)
		}
		if status == 400 && !strings.Contains(err.Error(), `"because`) {
			t.Errorf("answer %d: the error %v has nothing of its text", status, err)
		}
		server.Close()
	}
}

// TestRetryAfterIsHonoured has it in both forms, and nonsense.
func TestRetryAfterIsHonoured(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for text, want := range map[string]time.Duration{
			"7": 7 * time.Second, time.Now().Add(90 * time.Second).UTC().Format(http.TimeFormat): 90 * time.Second,
			"86400": webhookpub.MaxRetryAfter, "Fri, 31 Dec 9999 23:59:59 GMT": webhookpub.MaxRetryAfter,
			"": 0, "0": 0, "-1": 0, "soon": 0, "1.5": 0, "Thu, 21 Oct 1999 07:28:00 GMT": 0,
		} {
			server := newServer(t, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Retry-After", text)
				w.WriteHeader(http.StatusTooManyRequests)
			})
			p := publisher(t, "http://receiver", webhookpub.Options{Transport: server})
			_, err := p.Publish(t.Context(), []outbox.Message{event})
			after := time.Duration(0)
			if said, ok := errors.AsType[*feed.Failure](err); ok {
				after = said.After
			}
			if err == nil || after != want || !strings.Contains(err.Error(), "429") {
				t.Errorf("Retry-After %q: %v, want %v (%v)", text, after, want, err)
			}
			server.CloseIdleConnections()
		}
	})
}

// newServer serves in memory, so that time passes at once.
func newServer(t *testing.T, handle http.HandlerFunc) *http.Transport {
	l := memnet.Listen()
	server := &http.Server{Handler: handle}
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(l) })
	t.Cleanup(func() {
		_ = server.Close()
		serving.Wait()
	})
	return &http.Transport{DialContext: l.DialContext}
}

// TestAReceiverThatDoesNotAnswerIsGivenUp after the timeout.
func TestAReceiverThatDoesNotAnswerIsGivenUp(t *testing.T) {
	t.Parallel()
	for timeout, want := range map[time.Duration]time.Duration{0: 30 * time.Second, 7 * time.Second: 7 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			transport := newServer(t, func(_ http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body) // only then does the server notice that the client has gone
				<-r.Context().Done()
			})
			begun := time.Now()
			n, err := publisher(t, "http://receiver", webhookpub.Options{
				Transport: transport,
				Timeout:   timeout,
			}).Publish(t.Context(), []outbox.Message{event})
			if took := time.Since(begun); n != 0 || err == nil || feed.IsPoison(err) || took != want ||
				!strings.Contains(err.Error(), "no answer within "+want.String()) {
				t.Errorf("Publish: %d, %v after %v", n, err, took)
			}
			transport.CloseIdleConnections()
		})
	}
}

// TestAnAnswerThatDoesNotEndIsAnAnswer has a receiver that goes on talking after its status.
func TestAnAnswerThatDoesNotEndIsAnAnswer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		transport := newServer(t, func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			_, _ = w.Write(make([]byte, 1<<20))
			<-r.Context().Done()
		})
		begun := time.Now()
		n, err := publisher(t, "http://receiver", webhookpub.Options{Transport: transport}).Publish(t.Context(),
			[]outbox.Message{event})
		if took := time.Since(begun); n != 1 || err != nil || took != 0 {
			t.Errorf("Publish: %d, %v after %v", n, err, took)
		}
		transport.CloseIdleConnections()
	})
}

// TestAnErrorHasNothingOfTheURL in which there may be a secret.
func TestAnErrorHasNothingOfTheURL(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(nil)
	server.Close()
	_, err := publisher(t, server.URL+"/secret-in-the-path?code=secret", webhookpub.Options{}).Publish(t.Context(),
		[]outbox.Message{event})
	if err == nil || strings.Contains(err.Error(), "secret") {
		t.Errorf("Publish to a server that is gone: %v", err)
	}
}

func TestOptionsThatCannotBeAreRefused(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		url   string
		opts  webhookpub.Options
		field string
	}{
		{url: "", field: "URL"},
		{url: "example.com/events", field: "URL"},
		{url: "ftp://example.com", field: "URL"},
		{url: "http://", field: "URL"},
		{url: "http://%zz", field: "URL"},
		{url: "http://example.com", opts: webhookpub.Options{Secret: []byte{}}, field: "Secret"},
		{url: "http://example.com", opts: webhookpub.Options{Timeout: -1}, field: "Timeout"},
	} {
		_, err := webhookpub.New(c.url, c.opts)
		if option, ok := errors.AsType[*changefeed.OptionError](err); !ok || option.Field != c.field {
			t.Errorf("New(%q): %v, want one about %s", c.url, err, c.field)
		}
	}
	if _, err := webhookpub.New("ftp://user:hidden@example.com?code=hidden", webhookpub.Options{}); err == nil ||
		strings.Contains(err.Error(), "hidden") {
		t.Errorf("New: %v, want an error without what is secret", err)
	}
}

// TestDataThatIsNotJSONIsPoisonInTheStructuredMode would make the whole request unreadable.
func TestDataThatIsNotJSONIsPoisonInTheStructuredMode(t *testing.T) {
	t.Parallel()
	m := event
	m.Data = []byte(`{"a":`)
	if _, err := publisher(t, "http://127.0.0.1:1", webhookpub.Options{Structured: true}).Publish(t.Context(),
		[]outbox.Message{m}); !feed.IsPoison(err) {
		t.Errorf("Publish: %v, want Poison", err)
	}
}
