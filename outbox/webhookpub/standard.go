package webhookpub

import (
	"crypto/hmac"
	"encoding/base64"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/millrace/changefeed/internal/webhook"
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
		return nil, fmt.Errorf("the secret begins with %[1]s, and what follows is not base64: want base64 after %[1]s", secretPrefix)
	}
	return secret, nil
}

// VerifyStandard checks the signature of Standard Webhooks of a request with this header and body, from any sender. The
// signature must be valid under any of the secrets. The error is [ErrSignature]. The signature covers the webhook-id,
// the time and the body, and no other header: for events of this package in the binary mode only [Verify] proves the
// attributes.
func VerifyStandard(header http.Header, body []byte, secrets ...[]byte) error {
	for _, name := range []string{webhook.IDHeader, webhook.TimestampHeader, webhook.SignatureHeader} {
		if n := len(header.Values(name)); n != 1 {
			return fmt.Errorf("%w: %d headers %s", ErrSignature, n, name)
		}
	}
	t := header.Get(webhook.TimestampHeader)
	seconds, err := strconv.ParseInt(t, 10, 64)
	if err != nil {
		return fmt.Errorf("%w: %s is %.40q: want seconds since 1970", ErrSignature, webhook.TimestampHeader, t)
	}
	if err := checkAge(seconds); err != nil {
		return err
	}
	for text := range strings.FieldsSeq(header.Get(webhook.SignatureHeader)) {
		encoded, ok := strings.CutPrefix(text, "v1,")
		given, err := base64.StdEncoding.DecodeString(encoded)
		if !ok || err != nil {
			continue // a signature of another version
		}
		for _, secret := range secrets {
			// everybody knows the empty secret
			if len(secret) > 0 && hmac.Equal(given, webhook.MAC(header.Get(webhook.IDHeader), t, body, secret)) {
				return nil
			}
		}
	}
	return ErrSignature
}
