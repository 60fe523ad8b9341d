package webhookpub

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/millrace/changefeed/internal/cloudevent"
)

// The headers of Standard Webhooks (https://www.standardwebhooks.com).
const (
	standardID        = "Webhook-Id"
	standardTimestamp = "Webhook-Timestamp"
	standardSignature = "Webhook-Signature"
)

// secretPrefix begins a secret in the text form of Standard Webhooks.
const secretPrefix = "whsec_"

// SecretText returns a secret in the form for libraries of Standard Webhooks: whsec_ and the base64 of its bytes.
func SecretText(secret []byte) string {
	return secretPrefix + base64.StdEncoding.EncodeToString(secret)
}

// ParseSecret reads a secret from a configuration: base64 after whsec_, otherwise the bytes of the text.
func ParseSecret(text string) ([]byte, error) {
	encoded, ok := strings.CutPrefix(text, secretPrefix)
	if !ok {
		return []byte(text), nil
	}
	secret, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil || len(secret) == 0 {
		return nil, fmt.Errorf("secret that begins with %s: want base64 after that", secretPrefix)
	}
	return secret, nil
}

// signStandard sets the headers of Standard Webhooks.
func signStandard(header http.Header, id string, body []byte, now time.Time, secret []byte) {
	id = cloudevent.Escape(id) // the form of the header: the signature covers the header
	t := strconv.FormatInt(now.Unix(), 10)
	header.Set(standardID, id)
	header.Set(standardTimestamp, t)
	header.Set(standardSignature, "v1,"+base64.StdEncoding.EncodeToString(standardMAC(id, t, body, secret)))
}

// standardMAC returns the signature of an id, a time and a body.
func standardMAC(id, t string, body, secret []byte) []byte {
	mac := hmac.New(sha256.New, secret)
	mac.Write([]byte(id + "." + t + "."))
	mac.Write(body)
	return mac.Sum(nil)
}

// VerifyStandard checks the signature of Standard Webhooks of a request with this header and body, from any sender. The
// signature must be valid under any of the secrets. The error is [ErrSignature]. The signature covers the webhook-id,
// the time and the body, and no other header: for events of this package in the binary mode only [Verify] proves the
// attributes.
func VerifyStandard(header http.Header, body []byte, secrets ...[]byte) error {
	for _, name := range []string{standardID, standardTimestamp, standardSignature} {
		if n := len(header.Values(name)); n != 1 {
			return fmt.Errorf("%w: %d headers %s", ErrSignature, n, name)
		}
	}
	t := header.Get(standardTimestamp)
	seconds, err := strconv.ParseInt(t, 10, 64)
	if err != nil {
		return fmt.Errorf("%w: %s is %.40q: want seconds since 1970", ErrSignature, standardTimestamp, t)
	}
	if err := checkAge(seconds); err != nil {
		return err
	}
	for text := range strings.FieldsSeq(header.Get(standardSignature)) {
		encoded, ok := strings.CutPrefix(text, "v1,")
		given, err := base64.StdEncoding.DecodeString(encoded)
		if !ok || err != nil {
			continue // a signature of another version
		}
		for _, secret := range secrets {
			// everybody knows the empty secret
			if len(secret) > 0 && hmac.Equal(given, standardMAC(header.Get(standardID), t, body, secret)) {
				return nil
			}
		}
	}
	return ErrSignature
}
