package webhookpub

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/millrace/changefeed/internal/cloudevent"
)

// SignatureHeader is the header with the signature of a request.
const SignatureHeader = "Changefeed-Signature"

// Tolerance is the largest difference between the time of a signature and the receiver's clock.
const Tolerance = 5 * time.Minute

// ErrSignature: the request was not signed with the secret, or not recently.
var ErrSignature = errors.New("signature does not hold")

func sign(header http.Header, body []byte, now time.Time, secret []byte) {
	t := strconv.FormatInt(now.Unix(), 10)
	header.Set(SignatureHeader, fmt.Sprintf("t=%s,v1=%x", t, signature(header, body, t, secret)))
}

// signature returns the HMAC that the package's documentation describes.
func signature(header http.Header, body []byte, t string, secret []byte) []byte {
	mac := hmac.New(sha256.New, secret)
	line(mac, t)
	signed := map[string][]string{}
	for name, values := range header {
		if name := strings.ToLower(name); name == "content-type" || strings.HasPrefix(name, cloudevent.Prefix) {
			signed[name] = values
		}
	}
	for _, name := range slices.Sorted(maps.Keys(signed)) {
		for _, value := range signed[name] {
			line(mac, name+":"+value)
		}
	}
	line(mac, "")
	mac.Write(body)
	return mac.Sum(nil)
}

func line(to hash.Hash, text string) { _, _ = io.WriteString(to, text+"\n") } // a hash accepts everything

// Verify checks the signature of a request with this header and body. The signature must be valid under any of the
// secrets: pass two while you replace a secret. The error is [ErrSignature].
func Verify(header http.Header, body []byte, secrets ...[]byte) error {
	values := header.Values(SignatureHeader)
	if len(values) != 1 {
		return fmt.Errorf("%w: %d headers %s", ErrSignature, len(values), SignatureHeader)
	}
	t, text, ok := strings.Cut(values[0], ",v1=")
	t, isTime := strings.CutPrefix(t, "t=")
	seconds, err := strconv.ParseInt(t, 10, 64)
	given, notHex := hex.DecodeString(text)
	if !ok || !isTime || err != nil || notHex != nil {
		return fmt.Errorf("%w: %s is not t=…,v1=…", ErrSignature, SignatureHeader)
	}
	if err := checkAge(seconds); err != nil {
		return err
	}
	for _, secret := range secrets {
		// everybody knows the empty secret
		if len(secret) > 0 && hmac.Equal(given, signature(header, body, t, secret)) {
			return nil
		}
	}
	return ErrSignature
}

// checkAge refuses a request that was not signed recently, because an attacker may have recorded it.
func checkAge(seconds int64) error {
	if age := time.Since(time.Unix(seconds, 0)); age > Tolerance || age < -Tolerance {
		return fmt.Errorf("%w: signed %v ago by our clock", ErrSignature, age.Round(time.Second))
	}
	return nil
}
