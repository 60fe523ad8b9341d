package rest

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
)

// Signer computes the Authorization header of a request from its method, its resource and the date in its header.
type Signer interface {
	Sign(ctx context.Context, method string, at Resource, date string) (string, error)
}

// Key returns the signer of an account key: HMAC-SHA256 over method, kind, link and date. If the key is invalid, the
// error does not contain the key.
func Key(text string) (Signer, error) {
	key, err := base64.StdEncoding.DecodeString(strings.TrimSpace(text))
	if err != nil || len(key) == 0 {
		return nil, errors.New("account key is no base64, or empty: want the key as the portal shows it")
	}
	return &keySigner{key: key, made: map[signed]string{}}, nil
}

// keySigner remembers the signatures of a date. A date has whole seconds, so a client that sends many requests
// computes the same signatures repeatedly.
type keySigner struct {
	key []byte

	mu   sync.Mutex
	date string
	made map[signed]string // of date
}

// signed is the text that a signature covers, except for the date.
type signed struct{ method, kind, link string }

// mostSigned is how many signatures are remembered. There are many links of items, but few of them repeat.
const mostSigned = 100

// Sign implements [Signer].
func (k *keySigner) Sign(_ context.Context, method string, at Resource, date string) (string, error) {
	what := signed{method, at.Kind, at.Link}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.date != date || len(k.made) >= mostSigned {
		clear(k.made)
		k.date = date
	}
	text, ok := k.made[what]
	if !ok {
		text = k.sign(what, date)
		k.made[what] = text
	}
	return text, nil
}

// sign signs four lines and an empty line. All lines except the link are in lower case; the link is not, because the
// names of containers and items are case-sensitive. The result is escaped as a whole, as in a query.
func (k *keySigner) sign(what signed, date string) string {
	mac := hmac.New(sha256.New, k.key)
	fmt.Fprintf(mac, "%s\n%s\n%s\n%s\n\n", strings.ToLower(what.method), what.kind, what.link, strings.ToLower(date))
	return url.QueryEscape("type=master&ver=1.0&sig=" + base64.StdEncoding.EncodeToString(mac.Sum(nil)))
}

// Token returns a signer that uses the token of an identity, and keeps the token until shortly before its expiry. The
// scope of a token is the account's host, without a port.
func Token(identity azcore.TokenCredential, endpoint *url.URL) Signer {
	scope := endpoint.Scheme + "://" + endpoint.Hostname() + "/.default"
	return &tokenSigner{identity: identity, scope: scope, gate: make(chan struct{}, 1)}
}

type tokenSigner struct {
	identity azcore.TokenCredential
	scope    string
	gate     chan struct{} // held by the user of token; a channel, because GetToken may take long
	token    azcore.AccessToken
}

// tokenMargin is how long before its expiry a token is replaced. Within this time a failed replacement does no harm,
// because the old token is still accepted.
const tokenMargin = 5 * time.Minute

// Sign returns the header with the token. A single caller at a time replaces the token. The others wait, so only a
// single token is requested.
func (s *tokenSigner) Sign(ctx context.Context, _ string, _ Resource, _ string) (string, error) {
	select {
	case s.gate <- struct{}{}:
		defer func() { <-s.gate }()
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
	if time.Until(s.token.ExpiresOn) < tokenMargin {
		fresh, err := s.identity.GetToken(ctx, policy.TokenRequestOptions{Scopes: []string{s.scope}})
		switch {
		case err == nil:
			s.token = fresh
		case time.Until(s.token.ExpiresOn) <= 0: // the old token has expired too
			return "", fmt.Errorf("get token for %s: %w", s.scope, err)
		}
	}
	return url.QueryEscape("type=aad&ver=1.0&sig=" + s.token.Token), nil
}
