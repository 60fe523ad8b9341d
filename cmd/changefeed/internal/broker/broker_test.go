package broker

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/millrace/changefeed/outbox"
	"github.com/millrace/changefeed/outbox/webhookpub"
)

func TestAWebhookIsSignedWithTheSecretOfTheEnvironment(t *testing.T) {
	for _, secret := range []string{"", "s3cret"} {
		t.Setenv(SecretVariable, secret)
		var got outbox.Message
		var wrong error
		s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			if secret == "" {
				got, wrong = webhookpub.Receive(r)
			} else {
				got, wrong = webhookpub.Receive(r, []byte(secret))
			}
		}))
		defer s.Close()
		var warned []string
		p, err := Open(t.Context(), "to", s.URL+"/events", Settings{Warn: func(text string) {
			warned = append(warned, text)
		}})
		if err != nil {
			t.Fatal(err)
		}
		n, err := p.Publish(t.Context(), []outbox.Message{{
			ID: "1", Key: "k", Action: "a", Source: "/s",
			Data: []byte(`{"a":1}`),
		}})
		if n != 1 || err != nil || wrong != nil || got.ID != "1" || string(got.Data) != `{"a":1}` {
			t.Errorf("secret %q: %d accepted, %v; the receiver has %+v, %v", secret, n, err, got, wrong)
		}
		if (len(warned) == 1) != (secret == "") {
			t.Errorf("secret %q: warned %q", secret, warned)
		}
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestAddressesOfBrokers(t *testing.T) {
	for address, want := range map[string]string{
		"":                "want embedded:DIR",
		"embedded:":       "want embedded:DIR",
		"pigeon:loft":     "want embedded:DIR",
		"nats":            "want embedded:DIR",
		"https://":        "--to is https://: ",
		"nats://\x00":     "--to is nats://\x00: ",
		"embedded:\x00/d": "--to is embedded:\x00/d: ",
	} {
		if p, err := Open(t.Context(), "to", address, Settings{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, %v; want an error with %q", address, p, err, want)
		}
	}
}
