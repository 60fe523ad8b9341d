package place

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/changefeed/cmd/changefeed/internal/contexts"
	"github.com/millrace/changefeed/cmd/changefeed/internal/usage"
	"github.com/millrace/changefeed/cosmosrest"
	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/cosmosdb/rest"
)

// answering returns an account that is a handler.
func answering(t *testing.T, answer http.HandlerFunc) *Account {
	t.Helper()
	server := httptest.NewServer(answer)
	t.Cleanup(server.Close)
	signer, err := rest.Key(cosmosrest.EmulatorKey)
	if err != nil {
		t.Fatal(err)
	}
	return &Account{credentials: credentials{Endpoint: server.URL}, signer: signer, http: server.Client()}
}

func TestAThrottledRequestIsSentAgain(t *testing.T) {
	asked := 0
	a := answering(t, func(w http.ResponseWriter, _ *http.Request) {
		if asked++; asked == 1 {
			w.Header().Set("x-ms-retry-after-ms", "1")
			w.WriteHeader(http.StatusTooManyRequests)
			return
		}
		w.Header().Set("x-ms-request-charge", "2.5")
		_, _ = w.Write([]byte("{}")) // the test sees if it fails
	})
	reply, err := a.Send(t.Context(), Request{Method: http.MethodGet, Resource: []string{"dbs"}})
	if charge := reply.Charge(); err != nil || asked != 2 || charge == nil || *charge != 2.5 {
		t.Errorf("asked %d times: got %v, %v", asked, charge, err)
	}
}

func TestALongThrottlingIsAnError(t *testing.T) {
	a := answering(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("x-ms-retry-after-ms", "3600000")
		w.WriteHeader(http.StatusTooManyRequests)
	})
	_, err := a.Send(t.Context(), Request{Method: http.MethodGet, Resource: []string{"dbs"}})
	if Status(err) != http.StatusTooManyRequests {
		t.Errorf("got %v, want the refusal", err)
	}
}

func TestAListIsReadToItsEnd(t *testing.T) {
	a := answering(t, func(w http.ResponseWriter, r *http.Request) {
		text := `{"Databases":[{"id":"b"}]}`
		if r.Header.Get("x-ms-continuation") == "" {
			w.Header().Set("x-ms-continuation", "more")
			text = `{"Databases":[{"id":"a"}]}`
		}
		_, _ = w.Write([]byte(text)) // the test sees if it fails
	})
	all, err := a.List(t.Context(), "Databases", "dbs")
	if err != nil || len(all) != 2 || string(all[0]) != `{"id":"a"}` || string(all[1]) != `{"id":"b"}` {
		t.Errorf("got %s, %v", all, err)
	}
}

func TestADocumentIsSentByteForByte(t *testing.T) {
	const document = `{ "id":"<1>" }`
	var got []byte
	a := answering(t, func(_ http.ResponseWriter, r *http.Request) { got, _ = io.ReadAll(r.Body) })
	q := Request{Method: http.MethodPost, Resource: []string{"dbs", "d", "colls", "c", "docs"}, Body: []byte(document)}
	if _, err := a.Send(t.Context(), q); err != nil || string(got) != document {
		t.Errorf("sent %s, %v, want %s", got, err, document)
	}
}

func TestARefusalSaysWhatIsWrong(t *testing.T) {
	for body, want := range map[string]string{
		`{"message":"No.\r\nActivityId: 5"}`:                                                       "No.",
		`{"message":"Message: {\"Errors\":[\"Wrong.\",\"Else.\"]}\r\nActivityId: 5"}`:              "Wrong.",
		`{"message":"Message: {\"errors\":[{\"message\":\"Bad.\",\"code\":\"SC1\"}]}"}`:            "Bad.",
		`{"message":"{\"errors\":[{\"location\":{\"start\":3,\"end\":5},\"message\":\"Bad.\"}]}"}`: "characters 3 to 5: Bad.",
		`{"message":"Message: {\"errors\":[5]}"}`:                                                  "5",
		`<html>`: `"<html>"`,
	} {
		if got := refusalOf([]byte(body)); got != want {
			t.Errorf("%s: got %s, want %s", body, got, want)
		}
	}
}

func TestAQueryForAClientHasItsPlan(t *testing.T) {
	for _, tt := range []struct {
		status          int
		substatus, body string
		plan            string
		refused         bool
	}{
		{400, "1004", `{"message":"x","additionalErrorInfo":"{\"queryInfo\":{}}"}`, `{"queryInfo":{}}`, true},
		{400, "1004", `{"message":"x"}`, "", true},
		{400, "", `{"message":"Cross partition query only supports 'VALUE <AggregateFunc>' for aggregates."}`, "", true},
		{400, "", `{"message":"Syntax error"}`, "", false},
		{404, "1004", `{"message":"x"}`, "", false},
	} {
		a := answering(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("x-ms-substatus", tt.substatus)
			w.WriteHeader(tt.status)
			_, _ = w.Write([]byte(tt.body)) // the test sees if it fails
		})
		_, err := a.Send(t.Context(), Request{Method: http.MethodGet, Resource: []string{"dbs"}})
		if plan, refused := CrossPartitionPlan(err); string(plan) != tt.plan || refused != tt.refused {
			t.Errorf("%d %s: got %s, %v", tt.status, tt.body, plan, refused)
		}
	}
}

func TestAKeyInAHeaderIsASCII(t *testing.T) {
	if _, got := KeyHeader(feed.Key("Köln😀\x7f", 5)); got != `["K\u00f6ln\ud83d\ude00\u007f",5]` {
		t.Errorf("got %s", got)
	}
}

func TestAnAddressMayNameAWholeStore(t *testing.T) {
	t.Setenv(contexts.FileVariable, filepath.Join(t.TempDir(), "none"))
	var settings Settings
	for text, want := range map[string]Address{
		"data":                             {Dir: "data"},
		"./a:b":                            {Dir: "./a:b"},
		"docstore:data":                    {Dir: "data"},
		"docstore:data#shop/orders":        {Dir: "data", Database: "shop", Container: "orders"},
		"cosmos:":                          {},
		"cosmos:shop":                      {Database: "shop"},
		"cosmos:shop/orders":               {Database: "shop", Container: "orders"},
		"http://127.0.0.1:8081":            {endpoint: "http://127.0.0.1:8081"},
		"https://127.0.0.1:8081/":          {endpoint: "https://127.0.0.1:8081"},
		"http://127.0.0.1:8081/shop/o%20s": {endpoint: "http://127.0.0.1:8081", Database: "shop", Container: "o s"},
	} {
		want.Field, want.Given = "ADDRESS", text
		got, err := settings.ParseWhole("ADDRESS", text)
		if err != nil || got != want {
			t.Errorf("%s: got %+v, %v, want %+v", text, got, err, want)
		}
	}
	for _, text := range []string{
		"", "docstore:", "docstore:d#", "ftp://127.0.0.1", "http://", "http://127.0.0.1/a/b/c",
		"http://127.0.0.1/a?b=c",
		"http://user@127.0.0.1", "cosmos:a/b/c", "http://127.0.0.1:8081/a%2Fb",
	} {
		got, err := settings.ParseWhole("ADDRESS", text)
		if !errors.As(err, new(usage.Error)) {
			t.Errorf("%q: got %+v, %v, want a wrong use", text, got, err)
		}
	}
}

func TestAThrottledRequestWaitsAsLongAsTheAccountSays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := 0
		answer := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			if asked++; asked == 1 {
				w.Header().Set("x-ms-retry-after-ms", "5000")
				w.WriteHeader(http.StatusTooManyRequests)
			}
		})
		signer, err := rest.Key(cosmosrest.EmulatorKey)
		if err != nil {
			t.Fatal(err)
		}
		a := &Account{
			credentials: credentials{Endpoint: localURL}, signer: signer,
			http: &http.Client{Transport: inProcess{answer}},
		}
		begun := time.Now()
		_, err = a.Send(t.Context(), Request{Method: http.MethodGet, Resource: []string{"dbs"}})
		if spent := time.Since(begun); err != nil || asked != 2 || spent < 5*time.Second {
			t.Errorf("asked %d times in %v, %v, want the second time after 5s", asked, spent, err)
		}
	})
}

// Whoever interrupts a command that waits is told of the interruption, and not of the throttling.
func TestAThrottledRequestEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		interrupted := errors.New("interrupted")
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { cancel(interrupted) })
		refused := func() error { return &feed.ThrottledError{After: 5 * time.Second} }
		begun := time.Now()
		err := (&Account{}).whileThrottled(ctx, refused)
		if spent := time.Since(begun); !errors.Is(err, interrupted) || spent != time.Second {
			t.Errorf("ended after %v with %v, want the interruption after 1s", spent, err)
		}
	})
}

func TestAWaitThatAnAccountAsksForIsBounded(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"": 0, "NaN": 0, "-5": 0, "soon": 0, "1.5": 1500 * time.Microsecond, "1e300": longestAsked, "Inf": longestAsked,
		"1e400": longestAsked,
	} {
		if got := waitAsked(http.Header{"X-Ms-Retry-After-Ms": {text}}); got != want {
			t.Errorf("%q: got %v, want %v", text, got, want)
		}
	}
}

func TestAListWithoutAnEndIsAnError(t *testing.T) {
	for name, next := range map[string]func(n int) string{
		"one continuation": func(int) string { return "a" },
		"a cycle":          func(n int) string { return strconv.Itoa(n % 7) },
		"a late cycle":     func(n int) string { return strconv.Itoa(min(n, 40) + n%3) },
	} {
		for _, row := range []string{`{"id":"a"}`, ""} {
			asked := 0
			a := answering(t, func(w http.ResponseWriter, _ *http.Request) {
				if asked++; asked == 1000 {
					w.WriteHeader(http.StatusTeapot)
				}
				w.Header().Set("x-ms-continuation", next(asked))
				_, _ = w.Write([]byte(`{"Databases":[` + row + `]}`)) // the test sees if it fails
			})
			_, err := a.List(t.Context(), "Databases", "dbs")
			if err == nil || !strings.Contains(err.Error(), "the pages would never end") {
				t.Errorf("%s of rows %q: got %v after %d pages", name, row, err, asked)
			}
		}
	}
}

// A page for which an account had no time is empty, and may have the continuation of the page before.
func TestAListGoesOnAfterAnEmptyPage(t *testing.T) {
	var p Pages
	for i, page := range []struct {
		next string
		rows int
	}{{"a", 1}, {"a", 0}, {"a", 0}, {"b", 1}, {"c", 1}, {"c", 0}, {"d", 1}} {
		if err := p.Next(page.next, page.rows); err != nil {
			t.Errorf("page %d: %v", i+1, err)
		}
	}
}

func TestAnAnswerThatNoAccountGivesIsAnError(t *testing.T) {
	for _, tt := range []struct {
		method string
		status int
		body   string
		want   string
	}{
		{http.MethodGet, 200, "<html>", "the answer to GET /dbs/d is no JSON: is http://127.0.0.1:"},
		{http.MethodGet, 200, "", "is no JSON"},
		{http.MethodGet, 200, `{"id":"d"}`, "has no _rid"},
		{http.MethodGet, 200, `["id","_rid"]`, "has no id"},
		{http.MethodDelete, 200, "<html>", "has the status 200, and not 204: is http://127.0.0.1:"},
		{http.MethodGet, 200, `{"id":"d","_rid":"x"}`, ""},
		{http.MethodDelete, 204, "", ""},
	} {
		a := answering(t, func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(tt.status)
			_, _ = w.Write([]byte(tt.body)) // the test sees if it fails
		})
		q := Request{Method: tt.method, Resource: []string{"dbs", "d"}}
		if tt.method == http.MethodGet {
			q.Want = []string{"id", "_rid"}
		}
		_, err := a.Send(t.Context(), q)
		if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %d %s: got %v, want %s", tt.method, tt.status, tt.body, err, tt.want)
		}
	}
}

func TestAnAnswerThatIsTooLongIsNotCut(t *testing.T) {
	zeros := make([]byte, 1<<20)
	a := answering(t, func(w http.ResponseWriter, _ *http.Request) {
		for range maxReply>>20 + 1 {
			_, _ = w.Write(zeros) // the reader ends first
		}
	})
	reply, err := a.Send(t.Context(), Request{Method: http.MethodGet, Resource: []string{"dbs"}})
	if err == nil || !strings.Contains(err.Error(), "more than 64 MB") {
		t.Errorf("got %d bytes, %v", len(reply.Body), err)
	}
}

func TestANewNameIsOneThatTheServiceTakes(t *testing.T) {
	for name, want := range map[string]bool{
		"orders": true, "a b": true, "東京": true, strings.Repeat("ü", 255): true, "a/b": false, `a\b`: false,
		"a?": false, "a#": false, "a\x1b[2J": false, "a\n": false, "a ": false, strings.Repeat("a", 256): false,
	} {
		for _, at := range []Address{{Database: "d", Container: name}, {Database: name, Container: "c"}} {
			err := checkNewName(at)
			_, wrong := errors.AsType[usage.Error](err)
			if wrong == want || err != nil && strings.Contains(err.Error(), "\x1b") {
				t.Errorf("%+v: got %v, want it taken: %v", at, err, want)
			}
		}
	}
}
