package cosmos

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
)

// Credentials sign requests and nothing else: they are kept out of errors, logs and
// texts, which are read by more people than may read the data.

// Credential identifies the caller to the account; [Key] and [Token] make credentials.
type Credential struct {
	key   string
	token azcore.TokenCredential
}

// Key is an account key in base64, as the portal shows it.
func Key(key string) Credential { return Credential{key: key} }

// Token is an identity of Microsoft Entra ID, as package azidentity makes them. The
// identity needs a data plane role in the account; [Leases.SelfTest] names the actions
// that the role lacks.
func Token(credential azcore.TokenCredential) Credential { return Credential{token: credential} }

// String names the kind of credential and not the secret, because credentials end up in
// logs.
func (c Credential) String() string {
	if c.token != nil {
		return "Entra ID identity"
	}
	return "account key"
}

// signer makes the Authorization header of a request.
type signer interface {
	sign(ctx context.Context, method string, at resource, date string) (string, error)
}

// signer checks the key, so that a wrong one is an error of Open and not of every request. The
// scope of a token is the account's host, without a port.
func (c Credential) signer(endpoint *url.URL) (signer, error) {
	if c.token != nil {
		scope := endpoint.Scheme + "://" + endpoint.Hostname() + "/.default"
		return &tokenSigner{credential: c.token, scope: scope, gate: make(chan struct{}, 1)}, nil
	}
	key, err := base64.StdEncoding.DecodeString(strings.TrimSpace(c.key))
	if err != nil || len(key) == 0 {
		return nil, badRequest("account key is no base64, or empty: want the key as the portal shows it")
	}
	return keySigner(key), nil
}

// keySigner signs with an account key: HMAC-SHA256 over method, kind, link and date.
type keySigner []byte

// sign signs four lines and an empty one. All but the link are in lower case, because
// names of containers and items differ by case; the result is escaped as a whole, as in
// a query.
func (k keySigner) sign(_ context.Context, method string, at resource, date string) (string, error) {
	mac := hmac.New(sha256.New, k)
	fmt.Fprintf(mac, "%s\n%s\n%s\n%s\n\n", strings.ToLower(method), at.kind, at.link, strings.ToLower(date))
	return url.QueryEscape("type=master&ver=1.0&sig=" + base64.StdEncoding.EncodeToString(mac.Sum(nil))), nil
}

// tokenSigner presents a token, and keeps it until shortly before its end.
type tokenSigner struct {
	credential azcore.TokenCredential
	scope      string
	gate       chan struct{} // held by the user of token; a channel, because GetToken may wait
	token      azcore.AccessToken
}

// tokenMargin is how long before its end a token is replaced. Within it a failed
// replacement does no harm yet, since the old token is still accepted.
const tokenMargin = 5 * time.Minute

// sign presents the token. One caller at a time replaces it, and the others wait for that rather
// than ask for a token each.
func (s *tokenSigner) sign(ctx context.Context, _ string, _ resource, _ string) (string, error) {
	select {
	case s.gate <- struct{}{}:
		defer func() { <-s.gate }()
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
	if time.Until(s.token.ExpiresOn) < tokenMargin {
		fresh, err := s.credential.GetToken(ctx, policy.TokenRequestOptions{Scopes: []string{s.scope}})
		switch {
		case err == nil:
			s.token = fresh
		case time.Until(s.token.ExpiresOn) <= 0: // the old one will not do either
			return "", fmt.Errorf("get token for %s: %w", s.scope, err)
		}
	}
	return url.QueryEscape("type=aad&ver=1.0&sig=" + s.token.Token), nil
}
