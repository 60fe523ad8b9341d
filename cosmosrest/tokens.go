package cosmosrest

import (
	"cmp"
	"context"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

// Tokens says whose Entra tokens are accepted, and what their principals may do.
type Tokens struct {
	// Issuer is the claim iss that a token must have, as
	// https://login.microsoftonline.com/TENANT/v2.0.
	Issuer string

	// Audiences are the claims aud of which a token must have one. SDKs ask for tokens
	// for https://cosmos.azure.com or for the address of the account.
	Audiences []string

	// JWKS is the file or the https address of the issuer's public keys, a JSON Web
	// Key Set. It is read again, once in five minutes at most, when a token was signed
	// with a key that is not in it.
	JWKS string

	// Roles are what principals may do. One without any may do nothing.
	Roles Roles

	// Insecure also accepts the emulator's tokens. They are not signed, but have a
	// read-write key in the place of the signature, and they may do everything. With
	// the well-known key anybody can make one. The rest may then be empty.
	Insecure bool
}

// Sub-statuses of refused tokens: 401.
const (
	subTokenFormat     = 5003
	subTokenSignature  = 5004
	subTokenEarly      = 5005
	subTokenExpired    = 5006
	subTokenIssuer     = 5007
	subTokenAudience   = 5008
	subTokenPrincipal  = 5011
	subTokenUnknownKey = 5200
)

const tokenLeeway = time.Minute // by which clocks may differ

// signingMethods are those with a key pair. A method with a shared secret would take the
// public key for the secret.
var signingMethods = []string{"RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"}

// verifier checks Entra tokens. The nil verifier refuses all.
type verifier struct {
	want   *Tokens
	parser *jwt.Parser
	keys   *keySet // nil when only the emulator's tokens are accepted
	grants map[string][]grant
	proofs []string // third parts of the emulator's tokens
	log    *slog.Logger
}

// newVerifier reads the keys, if they are in a file.
func newVerifier(t *Tokens, keys Keys, log *slog.Logger) (*verifier, error) {
	if t == nil {
		return nil, nil
	}
	v := &verifier{want: t, log: log}
	if t.Insecure {
		keys = keys.orEmulator()
		for _, k := range []string{keys.Primary, keys.Secondary} {
			if k != "" {
				v.proofs = append(v.proofs, base64.RawURLEncoding.EncodeToString([]byte(k)))
			}
		}
	}
	v.parser = jwt.NewParser(jwt.WithValidMethods(signingMethods), jwt.WithLeeway(tokenLeeway), jwt.WithExpirationRequired(),
		jwt.WithIssuer(t.Issuer), jwt.WithAudience(t.Audiences...))
	switch {
	case t.Insecure && t.Issuer == "" && len(t.Audiences) == 0 && t.JWKS == "" && len(t.Roles) == 0:
		return v, nil
	case t.Issuer == "":
		return nil, errors.New("issuer of tokens is empty: want the iss of the tokens to accept, as https://login.microsoftonline.com/TENANT/v2.0")
	case len(t.Audiences) == 0:
		return nil, errors.New("audience of tokens is empty: want the aud of the tokens to accept, as https://cosmos.azure.com")
	case t.JWKS == "":
		return nil, errors.New("key set of tokens is empty: want the file or the https address of the issuer's JWKS")
	case len(t.Roles) == 0:
		return nil, errors.New("roles of tokens are empty: want what at least one principal may do")
	}
	var err error
	if v.grants, err = t.Roles.compile(); err != nil {
		return nil, err
	}
	v.keys, err = newKeySet(t.JWKS)
	return v, err
}

// claims are those that tell who a token is for.
type claims struct {
	jwt.RegisteredClaims
	Object string `json:"oid"`
	App    string `json:"appid"`
}

// principal is the id of who a token is for.
func (c *claims) principal() string { return cmp.Or(c.Object, c.App, c.Subject) }

// check finds out whose token it is.
func (v *verifier) check(ctx context.Context, token string) (principal, error) {
	if v == nil {
		return principal{}, unauthorized(subTokensOff, "The server takes no Entra tokens: want a signature with a key")
	}
	var c claims
	if v.proven(token) {
		_, _, err := v.parser.ParseUnverified(token, &c)
		if err == nil {
			err = jwt.NewValidator(jwt.WithLeeway(tokenLeeway), jwt.WithExpirationRequired()).Validate(c)
		}
		return principal{id: c.principal(), all: err == nil}, v.fault(err, &c)
	}
	if v.keys == nil {
		return principal{}, unauthorized(subTokensOff, "The server takes no Entra tokens but the emulator's: want one that ends in the key of the account")
	}
	_, err := v.parser.ParseWithClaims(token, &c, func(t *jwt.Token) (any, error) {
		id, _ := t.Header["kid"].(string)
		return v.keys.find(ctx, id, t.Method.Alg(), v.log)
	})
	switch {
	case err != nil:
		return principal{}, v.fault(err, &c)
	case c.principal() == "":
		return principal{}, unauthorized(subTokenPrincipal, "The token names no principal: want a claim oid, appid or sub")
	}
	return principal{id: c.principal(), grants: v.grants[c.principal()]}, nil
}

// proven tells whether a token ends in a key of the account.
func (v *verifier) proven(token string) bool {
	last := strings.TrimRight(token[strings.LastIndexByte(token, '.')+1:], "=")
	found := 0
	for _, p := range v.proofs {
		found |= subtle.ConstantTimeCompare([]byte(p), []byte(last))
	}
	return found == 1
}

// fault is the 401 of a token; nil for no error. Claims are looked at, and told, only
// when the signature is good.
func (v *verifier) fault(err error, c *claims) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, jwt.ErrTokenInvalidIssuer):
		return unauthorized(subTokenIssuer, "The Entra token has the claim iss %.100q: want %q", c.Issuer, v.want.Issuer)
	case errors.Is(err, jwt.ErrTokenInvalidAudience):
		return unauthorized(subTokenAudience, "The Entra token has the claim aud %.100q: want one of %q", c.Audience, v.want.Audiences)
	}
	sub := subTokenFormat
	for _, known := range []struct {
		err error
		sub int
	}{
		{errNoKey, subTokenUnknownKey},
		{jwt.ErrTokenSignatureInvalid, subTokenSignature},
		{jwt.ErrTokenExpired, subTokenExpired},
		{jwt.ErrTokenNotValidYet, subTokenEarly},
	} {
		if errors.Is(err, known.err) {
			sub = known.sub
			break
		}
	}
	return unauthorized(sub, "The Entra token is not valid: %v", fmt.Sprintf("%.200s", err.Error()))
}
