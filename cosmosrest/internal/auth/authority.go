package auth

import (
	"context"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/millrace/changefeed/cosmosrest/internal/wire"
)

// How a credential is checked. The Authorization header names its kind, and the kind decides who checks it: a
// signature with a key, an Entra token, or the resource token of a permission.

// The sub-statuses of refused credentials. Their status is always 401.
const (
	subNoHeader  = 0    // 401: there is no authorization header
	subBadHeader = 5001 // 401: the header cannot be parsed
	subTokensOff = 5002 // 401: Entra tokens are not accepted
)

// unauthorized returns a 401. As in the service, this error comes from the gateway, whose messages have no frame.
func unauthorized(sub int, format string, args ...any) *wire.Error {
	e := wire.Errorf(http.StatusUnauthorized, sub, wire.CodeUnauthorized, format, args...)
	e.Bare = true
	return e
}

// Authority knows the keys of an account, and which tokens are accepted.
type Authority struct {
	keys   keyring
	tokens *verifier
}

// New reads keys, and the key set of the tokens if that is a file. If tokens is nil, no tokens are accepted.
func New(keys []Key, tokens *Tokens, log *slog.Logger) (*Authority, error) {
	ring, err := newKeyring(keys)
	if err != nil {
		return nil, err
	}
	v, err := newVerifier(tokens, keys, log)
	return &Authority{ring, v}, err
}

// Authenticate returns the principal who sends a request.
func (a *Authority) Authenticate(ctx context.Context, r *wire.Request) (Principal, error) {
	text := r.Header(wire.HeaderAuthorization)
	if text == "" {
		return Principal{}, unauthorized(subNoHeader,
			"Required Header authorization is missing. Ensure a valid Authorization token is passed.")
	}
	cred, ok := parseCredential(text)
	switch {
	case !ok:
		return Principal{}, unauthorized(subBadHeader,
			"The authorization header has a wrong format: want type=master&ver=1.0&sig=SIGNATURE or "+
				"type=aad&ver=1.0&sig=TOKEN or a resource token, which may be percent-encoded")
	case cred.kind == "master":
		return a.keys.checkSignature(r, cred.signature)
	case cred.kind == "aad":
		return a.tokens.checkToken(ctx, cred.signature)
	case cred.kind == "resource":
		return a.checkResourceToken(cred.signature, time.Now())
	}
	return Principal{}, unauthorized(subBadHeader,
		"The authorization token is of type %q: want master, aad or resource", cred.kind)
}

// credential is a parsed Authorization header.
type credential struct {
	kind      string // master, aad, resource
	signature string
}

// parseCredential parses type=...&ver=1.0&sig=... The text may be percent-encoded, because some SDKs encode the whole
// text.
func parseCredential(text string) (credential, bool) {
	if strings.IndexByte(text, '%') >= 0 {
		plain, err := url.PathUnescape(text) // not as a query, because a bare + is part of a signature
		if err != nil {
			return credential{}, false
		}
		text = plain
	}
	kind, rest, ok := strings.Cut(text, "&")
	version, signature, more := strings.Cut(rest, "&")
	if !ok || !more || version != "ver=1.0" && version != "ver=1" {
		return credential{}, false
	}
	var c credential
	c.kind, ok = strings.CutPrefix(kind, "type=")
	c.signature, more = strings.CutPrefix(signature, "sig=")
	return c, ok && more && c.kind != "" && c.signature != ""
}
