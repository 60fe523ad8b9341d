package auth

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

// Tokens of Microsoft Entra ID are JSON Web Tokens, checked with the issuer's public keys. Issuer, audience and
// expiration are required. The rights of a principal come from the roles in the server's options, because a token
// does not contain the role assignments of Azure.

// Tokens says which Entra tokens are accepted. The fields are those of the server's options.
type Tokens struct {
	Issuer    string
	Audiences []string
	JWKS      string             // file or https address
	Roles     map[string][]Grant // by principal
	Insecure  bool               // also accept the emulator's tokens
}

// The sub-statuses of refused tokens. Their status is always 401.
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

// tokenLeeway is the accepted difference between the clocks of the issuer and of this server.
const tokenLeeway = time.Minute // accepted difference of clocks

// signingMethods are the methods with a key pair. A method with a shared secret could use the public key as the
// secret.
var signingMethods = []string{"RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"}

// verifier checks Entra tokens. A nil verifier refuses all tokens.
type verifier struct {
	want   *Tokens
	parser *jwt.Parser
	keys   *keySet // nil if only the emulator's tokens are accepted
	grants map[string][]grant
	proofs []string // third parts of the emulator's tokens
	log    *slog.Logger
}

// newVerifier reads the keys, if they are in a file. newVerifier refuses options that are incomplete, because they
// could accept anyone's tokens: issuer, audience, key set and roles are all required.
func newVerifier(t *Tokens, keys []Key, log *slog.Logger) (*verifier, error) {
	if t == nil {
		return nil, nil
	}
	v := &verifier{want: t, log: log}
	if t.Insecure {
		for _, k := range keys {
			// The emulator's tokens have all rights, so they must contain a read-write key.
			if k.Write && k.Text != "" {
				v.proofs = append(v.proofs, base64.RawURLEncoding.EncodeToString([]byte(k.Text)))
			}
		}
	}
	// All checks of the parser are configured here, so no call can omit any of them.
	v.parser = jwt.NewParser(jwt.WithValidMethods(signingMethods), jwt.WithLeeway(tokenLeeway),
		jwt.WithExpirationRequired(),
		jwt.WithIssuer(t.Issuer), jwt.WithAudience(t.Audiences...))
	switch {
	// No options of an issuer are set, so only the emulator's tokens are accepted. If only some of them are set, the
	// others are missing by mistake.
	case t.Insecure && t.Issuer == "" && len(t.Audiences) == 0 && t.JWKS == "" && len(t.Roles) == 0:
		return v, nil
	case t.Issuer == "":
		return nil,
			errors.New("issuer of tokens is empty: want the iss of the tokens to accept, as " +
				"https://login.microsoftonline.com/TENANT/v2.0")
	case len(t.Audiences) == 0:
		return nil,
			errors.New("audience of tokens is empty: want the aud of the tokens to accept, as https://cosmos.azure.com")
	case t.JWKS == "":
		return nil, errors.New("key set of tokens is empty: want the file or the https address of the issuer's JWKS")
	case len(t.Roles) == 0:
		return nil, errors.New("roles of tokens are empty: want what at least one principal may do")
	}
	var err error
	if v.grants, err = compileRoles(t.Roles); err != nil {
		return nil, err
	}
	v.keys, err = newKeySet(t.JWKS)
	return v, err
}

// claims are the claims that name the principal.
type claims struct {
	jwt.RegisteredClaims
	Object string `json:"oid"`
	App    string `json:"appid"`
}

// principal returns the principal's id: the object id or, for applications of version 1, the application's id.
func (c *claims) principal() string { return cmp.Or(c.Object, c.App, c.Subject) }

// checkToken returns the principal of a token.
func (v *verifier) checkToken(ctx context.Context, token string) (Principal, error) {
	if v == nil {
		return Principal{}, unauthorized(subTokensOff, "The server takes no Entra tokens: want a signature with a key")
	}
	var c claims
	if v.endsInKey(token) {
		_, _, err := v.parser.ParseUnverified(token, &c)
		if err == nil {
			err = jwt.NewValidator(jwt.WithLeeway(tokenLeeway), jwt.WithExpirationRequired()).Validate(c)
		}
		return Principal{id: c.principal(), all: err == nil}, v.tokenError(err, &c)
	}
	if v.keys == nil {
		return Principal{}, unauthorized(subTokensOff,
			"The server takes no Entra tokens but the emulator's: want one that ends in the key of the account")
	}
	_, err := v.parser.ParseWithClaims(token, &c, func(t *jwt.Token) (any, error) {
		id, _ := t.Header["kid"].(string)
		return v.keys.findKey(ctx, id, t.Method.Alg(), v.log)
	})
	switch {
	case err != nil:
		return Principal{}, v.tokenError(err, &c)
	case c.principal() == "":
		return Principal{}, unauthorized(subTokenPrincipal,
			"The token names no principal: want a claim oid, appid or sub")
	}
	return Principal{id: c.principal(), grants: v.grants[c.principal()]}, nil
}

// endsInKey reports whether a token contains a key of the account, as the emulator's tokens do instead of a signature.
func (v *verifier) endsInKey(token string) bool {
	last := strings.TrimRight(token[strings.LastIndexByte(token, '.')+1:], "=")
	// All proofs are compared, each in constant time, so the time does not reveal whether a proof was nearly right.
	found := 0
	for _, p := range v.proofs {
		found |= subtle.ConstantTimeCompare([]byte(p), []byte(last))
	}
	return found == 1
}

// tokenError returns the 401 of a token, or nil if err is nil. fault repeats claims only if the signature is valid;
// otherwise anyone could write texts into the log.
func (v *verifier) tokenError(err error, c *claims) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, jwt.ErrTokenInvalidIssuer):
		return unauthorized(subTokenIssuer, "The Entra token has the claim iss %.100q: want %q", c.Issuer,
			v.want.Issuer)
	case errors.Is(err, jwt.ErrTokenInvalidAudience):
		return unauthorized(subTokenAudience, "The Entra token has the claim aud %.100q: want one of %q", c.Audience,
			v.want.Audiences)
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
