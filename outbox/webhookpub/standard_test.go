package webhookpub_test

import (
	"bufio"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"flag"
	"maps"
	"net/http"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/changefeed/outbox/webhookpub"
)

// The vector is that of the tests of the Standard Webhooks libraries, whose time is September 2021.
func TestAStandardSignatureIsThatOfTheSpecification(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(time.Until(time.Unix(1614265330, 0)))
		secret, err := webhookpub.ParseSecret("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
		if err != nil {
			t.Fatal(err)
		}
		header := http.Header{
			"Webhook-Id": {"msg_p5jXN8AQM9LWM0D4loKWxJek"}, "Webhook-Timestamp": {"1614265330"},
			"Webhook-Signature": {"v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="},
		}
		if err := webhookpub.VerifyStandard(header, []byte(`{"test": 2432232314}`), secret); err != nil {
			t.Error(err)
		}
	})
}

func TestRequestsHaveAStandardSignature(t *testing.T) {
	t.Parallel()
	for _, structured := range []bool{false, true} {
		req, body := request(t, webhookpub.Options{Secret: secret, Structured: structured}, "")
		other := req.Header.Clone()
		other.Set("Webhook-Signature", "v1a,xx v2,yy "+req.Header.Get("Webhook-Signature"))
		for _, header := range []http.Header{req.Header, other} {
			if err := webhookpub.VerifyStandard(header, body, []byte("new"), secret); err != nil {
				t.Error(err)
			}
		}
		for name, change := range map[string]func(h http.Header){
			"another id":   func(h http.Header) { h.Set("Webhook-Id", "2") },
			"another time": func(h http.Header) { h.Set("Webhook-Timestamp", "1") },
			"no time":      func(h http.Header) { h.Set("Webhook-Timestamp", "x") },
			"two ids":      func(h http.Header) { h.Add("Webhook-Id", "2") },
			"no signature": func(h http.Header) { h.Del("Webhook-Signature") },
		} {
			header := req.Header.Clone()
			change(header)
			if err := webhookpub.VerifyStandard(header, body, secret); !errors.Is(err, webhookpub.ErrSignature) {
				t.Errorf("%s: %v, want %v", name, err, webhookpub.ErrSignature)
			}
		}
		if err := webhookpub.VerifyStandard(req.Header, append(body, ' '), secret); !errors.Is(err,
			webhookpub.ErrSignature) {
			t.Errorf("another body: %v, want %v", err, webhookpub.ErrSignature)
		}
	}
	at := strconv.FormatInt(time.Now().Unix(), 10)
	ofNobody := hmac.New(sha256.New, nil)
	ofNobody.Write([]byte("1." + at + ".{}"))
	forged := http.Header{
		"Webhook-Id": {"1"}, "Webhook-Timestamp": {at},
		"Webhook-Signature": {"v1," + base64.StdEncoding.EncodeToString(ofNobody.Sum(nil))},
	}
	if err := webhookpub.VerifyStandard(forged, []byte("{}"), nil, []byte{}); !errors.Is(err, webhookpub.ErrSignature) {
		t.Errorf("signed with the empty secret: %v, want %v", err, webhookpub.ErrSignature)
	}
}

func TestASecretIsReadInBothForms(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{"plain": "plain", webhookpub.SecretText(secret): string(secret)} {
		if got, err := webhookpub.ParseSecret(text); err != nil || string(got) != want {
			t.Errorf("%q is read as %q, %v", text, got, err)
		}
	}
	for _, text := range []string{"whsec_", "whsec_%"} {
		if _, err := webhookpub.ParseSecret(text); err == nil || !strings.Contains(err.Error(), "want base64") {
			t.Errorf("%q: %v", text, err)
		}
	}
}

var standardWebhooks = flag.String("standardwebhooks", "",
	"the `directory` of the programs that verify signatures with the libraries for Standard Webhooks")

// TestTheLibrariesForStandardWebhooksAcceptRequests gives requests to programs in other languages, which print ok or
// refused for each.
func TestTheLibrariesForStandardWebhooksAcceptRequests(t *testing.T) {
	if *standardWebhooks == "" {
		t.Skip("this needs -standardwebhooks, as in make conformance-standardwebhooks")
	}
	type line struct {
		Secret, Body string
		Headers      map[string]string
	}
	var input strings.Builder
	var want []string
	add := func(l line, answer string) {
		text, err := json.Marshal(l)
		if err != nil {
			t.Fatal(err)
		}
		input.Write(append(text, '\n'))
		want = append(want, answer)
	}
	for _, id := range []string{"1", "4f0c-é b"} {
		for _, structured := range []bool{false, true} {
			m := event
			m.ID = id
			req, body := requestOf(t, webhookpub.Options{Secret: secret, Structured: structured}, "", m)
			l := line{Secret: webhookpub.SecretText(secret), Body: string(body), Headers: map[string]string{}}
			for name := range req.Header {
				l.Headers[strings.ToLower(name)] = req.Header.Get(name)
			}
			add(l, "ok")
			wrong := l
			wrong.Body += " "
			add(wrong, "refused")
			other := l
			other.Headers = maps.Clone(l.Headers)
			other.Headers["webhook-id"] = "another"
			add(other, "refused")
		}
	}
	for _, command := range [][]string{
		{"node", filepath.Join(*standardWebhooks, "verify.mjs")},
		{filepath.Join(*standardWebhooks, ".venv", "bin", "python"), filepath.Join(*standardWebhooks, "verify.py")},
	} {
		cmd := exec.CommandContext(t.Context(), command[0], command[1:]...)
		cmd.Stdin = strings.NewReader(input.String())
		out, err := cmd.Output()
		if err != nil {
			t.Errorf("%q: %v", command, err)
		}
		var got []string
		for s := bufio.NewScanner(strings.NewReader(string(out))); s.Scan(); {
			got = append(got, s.Text())
		}
		if strings.Join(got, " ") != strings.Join(want, " ") {
			t.Errorf("%q answers %q, want %q", command[0], got, want)
		}
	}
}
