package place

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
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
