package webhookpub_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/changefeed/outbox"
	"github.com/millrace/changefeed/outbox/webhookpub"
)

// TestASignatureIsWhatItsDocumentationSays computes it by hand, with openssl dgst -sha256 -hmac.
func TestASignatureIsWhatItsDocumentationSays(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) { // where it is midnight at the beginning of 2000
		header := http.Header{
			"Ce-Id": {"1"}, "Ce-Source": {"/things"}, "Ce-Type": {"Done"}, "Ce-Specversion": {"1.0"},
			"Content-Type": {"application/json"}, "X-Other": {"x"},
			"Changefeed-Signature": {"t=946684800,v1=" + byHand},
		}
		if err := webhookpub.Verify(header, []byte(`{}`), secret); err != nil {
			t.Error(err)
		}
		header.Set(webhookpub.SignatureHeader, "t=946684800,v1="+byAnybody)
		if err := webhookpub.Verify(header, []byte(`{}`), nil, []byte{}, secret); !errors.Is(err,
			webhookpub.ErrSignature) {
			t.Errorf("signed with the empty secret: %v, want %v", err, webhookpub.ErrSignature)
		}
	})
}

// TestOnlyWhatWasSignedIsAccepted changes each part of a request.
func TestOnlyWhatWasSignedIsAccepted(t *testing.T) {
	t.Parallel()
	for _, structured := range []bool{false, true} {
		req, body := request(t, webhookpub.Options{Secret: secret, Structured: structured}, "")
		receive := func(change func(r *http.Request), secrets ...[]byte) error {
			r := req.Clone(t.Context())
			r.Body = io.NopCloser(bytes.NewReader(body))
			if change != nil {
				change(r)
			}
			m, err := webhookpub.Receive(r, secrets...)
			if err == nil && (m.ID != event.ID || m.Key != event.Key || string(m.Data) != string(event.Data)) {
				t.Errorf("received %+v", m)
			}
			return err
		}
		for _, secrets := range [][][]byte{nil, {secret}, {[]byte("new"), secret}} {
			if err := receive(nil, secrets...); err != nil {
				t.Errorf("with %d secrets: %v", len(secrets), err)
			}
		}
		signature := req.Header.Get(webhookpub.SignatureHeader)
		set := func(name, value string) func(r *http.Request) {
			return func(r *http.Request) { r.Header.Set(name, value) }
		}
		for name, change := range map[string]func(r *http.Request){
			"another body": func(r *http.Request) {
				r.Body = io.NopCloser(strings.NewReader(string(body) + " "))
			},
			"another id":           set("Ce-Id", "2"),
			"an attribute more":    set("Ce-Extra", "x"),
			"another content type": set("Content-Type", "application/json; charset=utf-8"),
			"no signature":         func(r *http.Request) { r.Header.Del(webhookpub.SignatureHeader) },
			"an empty signature":   set(webhookpub.SignatureHeader, ""),
			"no hexadecimal":       set(webhookpub.SignatureHeader, strings.Replace(signature, "v1=", "v1=x", 1)),
			"half a signature":     set(webhookpub.SignatureHeader, signature[:len(signature)-32]),
			"another time":         set(webhookpub.SignatureHeader, strings.Replace(signature, "t=", "t=0", 1)),
			"two signatures":       func(r *http.Request) { r.Header.Add(webhookpub.SignatureHeader, signature) },
		} {
			if err := receive(change, secret); !errors.Is(err, webhookpub.ErrSignature) {
				t.Errorf("%s: %v, want %v", name, err, webhookpub.ErrSignature)
			}
		}
		for _, secrets := range [][][]byte{{[]byte("other")}, {nil}, {{}}} {
			if err := receive(nil, secrets...); !errors.Is(err, webhookpub.ErrSignature) {
				t.Errorf("under the secret %q: %v, want %v", secrets, err, webhookpub.ErrSignature)
			}
		}
	}
}

// TestARequestIsGoodForMinutes has one that somebody has recorded, and a receiver's clock that is behind.
func TestARequestIsGoodForMinutes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var sent *http.Request
		transport := newServer(t, func(_ http.ResponseWriter, r *http.Request) { sent = r })
		if _, err := publisher(t, "http://receiver",
			webhookpub.Options{Secret: secret, Transport: transport}).Publish(t.Context(),
			[]outbox.Message{event}); err != nil {
			t.Fatal(err)
		}
		transport.CloseIdleConnections()
		for _, step := range []struct {
			pass time.Duration
			want error
		}{{0, nil}, {webhookpub.Tolerance, nil}, {time.Second, webhookpub.ErrSignature}} {
			time.Sleep(step.pass)
			for name, verify := range map[string]func(http.Header, []byte, ...[]byte) error{
				"Verify":         webhookpub.Verify,
				"VerifyStandard": webhookpub.VerifyStandard,
			} {
				if err := verify(sent.Header, event.Data, secret); !errors.Is(err, step.want) {
					t.Errorf("%s after %v more: %v, want %v", name, step.pass, err, step.want)
				}
			}
		}
		late := sent.Header.Clone()
		late.Set(webhookpub.SignatureHeader, fmt.Sprintf("t=%d,v1=%064d", time.Now().Add(6*time.Minute).Unix(), 0))
		if err := webhookpub.Verify(late, event.Data, secret); err == nil || !strings.Contains(err.Error(), "-6m") {
			t.Errorf("signed in the future: %v", err)
		}
	})
}

// TestWhatIsNoEventIsRefused with the error that says so.
func TestWhatIsNoEventIsRefused(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		kind, body string
		want       error
	}{
		"no content type": {"", `{}`, webhookpub.ErrMalformed},
		"a form":          {"application/x-www-form-urlencoded", `a=b`, webhookpub.ErrMalformed},
		"a batch":         {"application/cloudevents-batch+json", `[]`, webhookpub.ErrMalformed},
		"no attributes":   {"application/json", `{}`, webhookpub.ErrMalformed},
		"no object":       {"application/cloudevents+json", `[]`, webhookpub.ErrMalformed},
		"half an object":  {"application/cloudevents+json", `{"id":"1"`, webhookpub.ErrMalformed},
		"a number for an id": {
			"application/cloudevents+json", `{"specversion":"1.0","id":1}`,
			webhookpub.ErrMalformed,
		},
		"an attribute object": {
			"application/cloudevents+json", `{"specversion":"1.0","id":"1","x":{}}`,
			webhookpub.ErrMalformed,
		},
		"data twice": {
			"application/cloudevents+json",
			`{"specversion":"1.0","id":"1","data":1,"data_base64":"MQ=="}`, webhookpub.ErrMalformed,
		},
		"data that is binary": {
			"application/cloudevents+json", `{"specversion":"1.0","id":"1","data_base64":"/w=="}`,
			webhookpub.ErrMalformed,
		},
		"data in no base64": {
			"application/cloudevents+json", `{"specversion":"1.0","id":"1","data_base64":"%"}`,
			webhookpub.ErrMalformed,
		},
		"more than 4 MB": {"application/json", strings.Repeat("x", 4<<20+1), outbox.ErrTooLarge},
		"an id that is empty": {
			"application/cloudevents+json; charset=utf-8", `{"specversion":"1.0","id":""}`,
			webhookpub.ErrMalformed,
		},
	} {
		r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(c.body))
		r.Header.Set("Content-Type", c.kind)
		if _, err := webhookpub.Receive(r); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
	whole, _ := request(t, webhookpub.Options{}, "")
	for _, kind := range []string{"", "application/json; charset"} {
		whole.Header.Set("Content-Type", kind)
		if _, err := webhookpub.Receive(whole); !errors.Is(err, webhookpub.ErrMalformed) {
			t.Errorf("an event of the content type %q: %v, want %v", kind, err, webhookpub.ErrMalformed)
		}
	}
}

// The CNCF's SDK for Go sends data in base64, and others have extensions of their own.
func TestEventsOfOtherSendersAreRead(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ subject, kind, body string }{
		"structured, in base64": {
			"", "application/cloudevents+json",
			`{"specversion":"1.0","id":"1","source":"/s","type":"a","subject":"k k","partitionkey":"k k","retries":3,"sampled":true,"dataschema":null,"datacontenttype":"application/json","data_base64":"eyJuIjoxfQ=="}`,
		},
		"structured": {
			"", "application/cloudevents+json; charset=UTF-8",
			`{"data":{"n":1},"id":"1","partitionkey":"k k","source":"/s","specversion":"1.0","type":"a"}`,
		},
		"binary, escaped":   {"k%20k", "application/json", `{"n":1}`},
		"binary, in quotes": {`"k\ k"`, "application/json", `{"n":1}`},
	} {
		r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(c.body))
		r.Header.Set("Content-Type", c.kind)
		if c.subject != "" {
			for name, value := range map[string]string{
				"specversion": "1.0", "id": "1", "source": "/s", "type": "a",
				"partitionkey": c.subject,
			} {
				r.Header.Set("ce-"+name, value)
			}
		}
		m, err := webhookpub.Receive(r)
		if err != nil || m.ID != "1" || m.Key != "k k" || m.Action != "a" || string(m.Data) != `{"n":1}` {
			t.Errorf("%s: got %+v %s, %v", name, m, m.Data, err)
		}
	}
}

// A receiver that prints what it gets.
func ExampleReceive() {
	secret := []byte("shared by both")
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		m, err := webhookpub.Receive(r, secret)
		switch {
		case errors.Is(err, webhookpub.ErrSignature):
			http.Error(w, err.Error(), http.StatusUnauthorized)
		case err != nil:
			http.Error(w, err.Error(), http.StatusBadRequest)
		default:
			fmt.Println(m.Key, m.Seq, m.Action, string(m.Data))
		}
	}))
	defer receiver.Close()

	to, err := webhookpub.New(receiver.URL, webhookpub.Options{Secret: secret})
	if err != nil {
		panic(err)
	}
	defer to.Close()
	fmt.Println(to.Publish(context.Background(), []outbox.Message{
		{
			ID: "1", Key: "ada", Action: "ContactCreatedEvent", Source: "/contacts", Seq: 1,
			Data: []byte(`{"name":"Ada"}`),
		},
	}))
	// Output:
	// ada 1 ContactCreatedEvent {"name":"Ada"}
	// 1 <nil>
}

const (
	byHand    = "6786a4adc08c3fc2f9b7b144559e0907d8da0f6c7d9f51cfa791a95781c8d155"
	byAnybody = "3b2aaefe6b59e55db1098afc8204eb3a93678734d4fcb47d9c3d6a8173a7f30f"
)
