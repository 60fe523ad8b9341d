package function

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/suspects"
)

// hostAt returns a host whose program runs already, at an address.
func hostAt(t *testing.T, address string, o HostOptions) *Host {
	t.Helper()
	o.Log = cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	h := &Host{app: &App{}, opts: o, client: newClient(), life: newLife()}
	h.life.address, h.life.turn = address, suspects.NewTurn()
	close(h.life.ready)
	t.Cleanup(h.client.CloseIdleConnections)
	return h
}

// rawProgram is a program that answers each connection with a text, and notes what came.
func rawProgram(t *testing.T, answer string) (address string, requests <-chan string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	came := make(chan string, 1)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_ = c.SetDeadline(time.Now().Add(10 * time.Second)) // a request that is wrong may have no end
			came <- readRaw(c)
			// Otherwise the next request may go to this connection.
			_, _ = io.WriteString(c, strings.Replace(answer, "\r\n", "\r\nConnection: close\r\n", 1))
			c.Close()
		}
	}()
	return l.Addr().String(), came
}

// readRaw reads a request until its last chunk.
func readRaw(c net.Conn) string {
	var text strings.Builder
	r := bufio.NewReader(io.TeeReader(c, &text))
	for {
		line, err := r.ReadString('\n')
		if err != nil || line == "0\r\n" {
			_, _ = r.ReadString('\n')
			return text.String()
		}
	}
}

// The values that differ each time.
var (
	anID   = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}`)
	aTime  = regexp.MustCompile(`"UtcNow":"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,7})?Z"`)
	aChunk = regexp.MustCompile(`\r\n[1-9a-f][0-9a-f]*\r\n`)
)

const done = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"

// An invocation is on the wire what Azure's host sends, with the headers of this host besides.
func TestAnInvocationIsThatOfAzure(t *testing.T) {
	address, requests := rawProgram(t, done)
	f := &Function{Name: "Seen", Trigger: Trigger{Name: "docs"}}
	b := &feed.Batch{
		LeaseToken: "-1F", Range: feed.Range{Max: "1F"}, Instance: "one/ü", Epoch: 7, Attempt: 2,
		Changes: []feed.Change{
			{LSN: 7, ID: "1", Body: []byte(`{"id":"1","pk":"k"}`)},
			{LSN: 8, ID: "2", Body: []byte(`{"id":"2", "n":1.0,"at":"2026-11-22T04:00:00+02:00","é\u00e9":"<a\n\\\"'>"}`)},
		},
	}
	h := hostAt(t, address, HostOptions{Drain: 1500 * time.Millisecond}).Handler(f, nil)
	if err := h.Handle(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	got := strings.ReplaceAll(<-requests, address, "HERE")
	got = aTime.ReplaceAllString(anID.ReplaceAllString(got, "ID"), `"UtcNow":"NOW"`)
	if n := strings.Count(got, "ID"); n != 2 {
		t.Errorf("there are %d random ids, want 2", n)
	}
	got = aChunk.ReplaceAllString(got, "\r\nSIZE\r\n")
	want := strings.ReplaceAll(`POST /Seen HTTP/1.1
Host: HERE
User-Agent: Azure-Functions-Host/4.1037.0.0
Transfer-Encoding: chunked
Changefeed-Attempt: 2
Changefeed-Drain: 1.5
Changefeed-Epoch: 7
Changefeed-Instance: one%2F%C3%BC
Changefeed-Lease: -1F
Changefeed-Range: -1F
Content-Type: application/json; charset=utf-8
X-Azure-Functions-HostVersion: 4.1037.0.0
X-Azure-Functions-InvocationId: ID

SIZE
{"Data":{"docs":"\"[{\\\"id\\\":\\\"1\\\",\\\"pk\\\":\\\"k\\\",\\\"_lsn\\\":7},`+
		`{\\\"id\\\":\\\"2\\\", \\\"n\\\":1.0,\\\"at\\\":\\\"2026-11-22T04:00:00+02:00\\\",`+
		`\\\"é\\\\u00e9\\\":\\\"<a\\\\n\\\\\\\\\\\\\\\"'>\\\",\\\"_lsn\\\":8}]\""},`+
		`"Metadata":{"sys":{"MethodName":"Seen","UtcNow":"NOW","RandGuid":"ID"}}}
0

`, "\n", "\r\n")
	if got != want {
		t.Errorf("got\n%q\nwant\n%q", got, want)
	}
}

// A text is escaped as Newtonsoft.Json does, and no further.
func TestATextIsEscapedAsByNewtonsoft(t *testing.T) {
	for text, want := range map[string]string{
		"plain é € 😀 / ' < > & \u007f": "plain é € 😀 / ' < > & \u007f",
		"\" \\ \b\t\n\f\r":             `\" \\ \b\t\n\f\r`,
		"\x00\x01\x0b\x1f":             `\u0000\u0001\u000b\u001f`,
		"a\u0085b\u2028c\u2029d":       `a\u0085b\u2028c\u2029d`,
		"\u0084\u0086\u2027\u202a\xc2": "\u0084\u0086\u2027\u202a\xc2",
	} {
		if got := string(appendString(nil, []byte(text))); got != `"`+want+`"` {
			t.Errorf("%q: got %s, want %q", text, got, want)
		}
	}
}

// The changes of all versions have the shape of the service.
func TestAVersionHasTheShapeOfTheService(t *testing.T) {
	f := &Function{Name: "Seen", Trigger: Trigger{AllVersions: true}}
	at := time.Unix(1700000000, 0)
	b := &feed.Batch{Changes: []feed.Change{
		{Op: feed.OpCreate, LSN: 5, Time: at, Body: []byte(`{"id":"1"}`)},
		{Op: feed.OpDelete, LSN: 6, Time: at, Previous: []byte(`{"id":"1"}`), PreviousLSN: 5, Expired: true},
	}}
	got := string(hostAt(t, "", HostOptions{}).Handler(f, nil).encodeChanges(b))
	want := `[{"current":{"id":"1"},"previous":null,"metadata":{"crts":1700000000,"lsn":5,"operationType":"create",` +
		`"previousImageLSN":0,"timeToLiveExpired":false}},` +
		`{"current":{},"previous":{"id":"1"},"metadata":{"crts":1700000000,"lsn":6,"operationType":"delete",` +
		`"previousImageLSN":5,"timeToLiveExpired":true}}]`
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	for _, tt := range []struct{ body, want string }{
		{`{}`, `{"_lsn":3}`}, {`{ }`, `{ "_lsn":3}`}, {"{\"id\":1 }\n", `{"id":1 ,"_lsn":3}`}, {`7`, `7`},
	} {
		if got := string(appendDocument(nil, &feed.Change{LSN: 3, Body: []byte(tt.body)})); got != tt.want {
			t.Errorf("document %q: got %s, want %s", tt.body, got, tt.want)
		}
	}
}

// What an answer means is what it means on Azure, except that an invocation which would never complete there fails.
func TestAnAnswerMeansWhatItMeansOnAzure(t *testing.T) {
	const object = "Content-Type: application/json\r\n"
	for _, tt := range []struct{ name, head, body, want string }{
		{"an object", "200 OK\r\n" + object, `{}`, ""},
		{"another type of JSON", "201 Created\r\nContent-Type: text/json; charset=utf-8\r\n", "\ufeff{} ", ""},
		{"all members", "200 OK\r\n" + object, `{"Outputs":{"x":1},"Logs":["a"],"ReturnValue":7}`, ""},
		{"names in any case", "200 OK\r\n" + object, `{"outputs":null,"LOGS":null,"returnValue":null,"more":[]}`, ""},
		{"no body", "200 OK\r\n" + object, "", "answer 200 OK has no body: on Azure such an invocation never"},
		{"204", "204 No Content\r\n", "", "answer 204 No Content has no body: on Azure such an invocation never"},
		{"null", "200 OK\r\n" + object, "null", "answer 200 OK is null: on Azure such an invocation never completes"},
		{"no type", "200 OK\r\n", `{}`, `answer 200 OK has the Content-Type "": want application/json`},
		{"a text", "200 OK\r\nContent-Type: text/plain\r\n", `{}`, `answer 200 OK has the Content-Type "text/plain"`},
		{"nonsense", "200 OK\r\n" + object, `{"Outputs":`, "answer 200 OK is wrong: unexpected end of JSON input"},
		{"an array", "200 OK\r\n" + object, `[]`, "answer 200 OK is not an object: want an object with Outputs"},
		{"logs", "200 OK\r\n" + object, `{"Logs":"a"}`, "answer 200 OK is wrong: Logs is of the type string: want"},
		{"a log", "200 OK\r\n" + object, `{"Logs":[{}]}`, "answer 200 OK is wrong: want a text"},
		{"outputs", "200 OK\r\n" + object, `{"Outputs":[]}`, "answer 200 OK is wrong: Outputs is of the type array: want"},
		{"400", "400 Bad Request\r\n" + object, `{"Outputs":{}}`, `answer 400 Bad Request: "{\"Outputs\":{}}"`},
		{"500", "500 Internal Server Error\r\n", "oops", `answer 500 Internal Server Error: "oops"`},
		{"a redirect to nowhere", "302 Found\r\n", "", "answer 302 Found"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			address, _ := rawProgram(t, fmt.Sprintf("HTTP/1.1 %sContent-Length: %d\r\n\r\n%s", tt.head, len(tt.body),
				tt.body))
			err := hostAt(t, address, HostOptions{}).Handler(&Function{Name: "Seen"}, nil).
				Handle(t.Context(), &feed.Batch{Attempt: 1})
			want := tt.want
			if want != "" {
				want = "function Seen: " + want
			}
			if got := textOfError(err); !strings.HasPrefix(got, want) || want == "" && got != "" {
				t.Errorf("got  %q\nwant %q", got, want)
			}
			if f, ok := errors.AsType[*feed.Failure](err); ok && f.Outage {
				t.Errorf("%v counts no attempt", err)
			}
		})
	}
}

func textOfError(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// A program may ask for a pause.
func TestAnAnswerMayAskForAPause(t *testing.T) {
	address, _ := rawProgram(t, "HTTP/1.1 429 Too Many Requests\r\nRetry-After: 7\r\nContent-Length: 0\r\n\r\n")
	f := &Function{Name: "Seen", Retry: &Retry{Max: -1, Fixed: time.Second}}
	err := hostAt(t, address, HostOptions{}).Handler(f, nil).Handle(t.Context(), &feed.Batch{Attempt: 1})
	failure, ok := errors.AsType[*feed.Failure](err)
	if !ok || failure.After != 7*time.Second || failure.Outage {
		t.Errorf("got %#v", err)
	}
}

// Redirects are followed: a POST stays one only if the status says so.
func TestARedirectIsFollowed(t *testing.T) {
	var steps []string
	mux := http.NewServeMux()
	mux.HandleFunc("/Seen", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "/second", http.StatusTemporaryRedirect)
	})
	mux.HandleFunc("/second", func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		steps = append(steps, r.Method, fmt.Sprint(json.Valid(body)))
		http.Redirect(w, r, "/third", http.StatusFound)
	})
	mux.HandleFunc("/third", func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		steps = append(steps, r.Method, fmt.Sprint(len(body)))
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, "{}")
	})
	mux.HandleFunc("/Round", func(w http.ResponseWriter, r *http.Request) {
		steps = append(steps, "round")
		http.Redirect(w, r, "/Round", http.StatusFound)
	})
	server := httptest.NewServer(mux)
	defer server.Close()
	h := hostAt(t, server.Listener.Addr().String(), HostOptions{})
	if err := h.Handler(&Function{Name: "Seen"}, nil).Handle(t.Context(), &feed.Batch{Attempt: 1}); err != nil {
		t.Error(err)
	}
	if got := strings.Join(steps, " "); got != "POST true GET 0" {
		t.Errorf("the steps are %s", got)
	}
	steps = nil
	err := h.Handler(&Function{Name: "Round"}, nil).Handle(t.Context(), &feed.Batch{Attempt: 1})
	if got := textOfError(err); !strings.HasPrefix(got, "function Round: answer 302 Found") || len(steps) != 51 {
		t.Errorf("after %d redirects got %s", len(steps)-1, got)
	}
}

// A program that closes the connection while it runs has failed on the batch.
func TestAClosedConnectionIsAFailure(t *testing.T) {
	address, _ := rawProgram(t, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\n{}")
	err := hostAt(t, address, HostOptions{}).Handler(&Function{Name: "Seen"}, nil).
		Handle(t.Context(), &feed.Batch{Attempt: 1})
	if !errors.Is(err, io.ErrUnexpectedEOF) || errors.As(err, new(*feed.Failure)) {
		t.Errorf("got %v", err)
	}
}

// A program that closes the connection before it answers, as after an exception, is named in the error.
func TestAConnectionWithoutAnAnswerIsNamed(t *testing.T) {
	address, _ := rawProgram(t, "")
	err := hostAt(t, address, HostOptions{}).Handler(&Function{Name: "Seen"}, nil).
		Handle(t.Context(), &feed.Batch{Attempt: 1})
	want := "the program has closed the connection without an answer: EOF"
	if textOfError(err) != want || errors.As(err, new(*feed.Failure)) {
		t.Errorf("got %v, want %s", err, want)
	}
}

// A batch of a lease that is lost already is not sent.
func TestABatchOfALostLeaseIsNotSent(t *testing.T) {
	address, requests := rawProgram(t, done)
	ctx, lose := context.WithCancelCause(t.Context())
	lose(feed.ErrLeaseLost)
	err := hostAt(t, address, HostOptions{}).Handler(&Function{Name: "Seen"}, nil).Handle(ctx, &feed.Batch{Attempt: 1})
	if !errors.Is(err, feed.ErrLeaseLost) || len(requests) != 0 {
		t.Errorf("got %v, and %d requests", err, len(requests))
	}
}
