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

// Credential is what the account knows the caller by; [Key] and [Token] make one.
type Credential struct {
	key   string
	token azcore.TokenCredential
}

// Key is an account key as the portal shows it, in base64.
func Key(key string) Credential { return Credential{key: key} }

// Token is an identity of Microsoft Entra ID, as package azidentity makes them. It needs
// a data plane role in the account; [Leases.SelfTest] tells which actions are missing.
func Token(credential azcore.TokenCredential) Credential { return Credential{token: credential} }

// String tells the kind of credential, and keeps the secret.
func (c Credential) String() string {
	if c.token != nil {
		return "Entra ID identity"
	}
	return "account key"
}

// A signer makes the Authorization header of a request.
type signer interface {
	sign(ctx context.Context, method string, at resource, date string) (string, error)
}

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

// keySigner signs with an account key.
type keySigner []byte

func (k keySigner) sign(_ context.Context, method string, at resource, date string) (string, error) {
	mac := hmac.New(sha256.New, k)
	fmt.Fprintf(mac, "%s\n%s\n%s\n%s\n\n", strings.ToLower(method), at.kind, at.link, strings.ToLower(date))
	return url.QueryEscape("type=master&ver=1.0&sig=" + base64.StdEncoding.EncodeToString(mac.Sum(nil))), nil
}

// tokenSigner shows a token, which it keeps until shortly before it expires.
type tokenSigner struct {
	credential azcore.TokenCredential
	scope      string
	gate       chan struct{} // held by whoever looks at token
	token      azcore.AccessToken
}

// tokenMargin is how long before its end a token is replaced.
const tokenMargin = 5 * time.Minute

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
