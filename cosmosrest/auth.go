package cosmosrest

import (
	"net/http"
	"net/url"
	"strings"
)

// Sub-statuses of refused credentials.
const (
	subNoHeader         = 5000 // 401: there is no authorization header
	subBadHeader        = 5001 // 401: it cannot be read
	subTokensOff        = 5002 // 401: Entra tokens are not accepted
	subManageByToken    = 5300 // 403: no role grants to manage the account
	subMetadataRefused  = 5301 // 403: no role grants to read metadata
	subNotGranted       = 5302 // 403: no role grants the action
	codeUnauthorized    = "Unauthorized"
	headerAuthorization = "Authorization"
)

// unauthorized is a 401.
func unauthorized(sub int, format string, args ...any) *fault {
	f := newFault(http.StatusUnauthorized, sub, codeUnauthorized, format, args...)
	f.gateway = true
	return f
}

// authenticate finds out who sends a request.
func (s *Server) authenticate(c *call) (principal, error) {
	text := c.header(headerAuthorization)
	if text == "" {
		return principal{}, unauthorized(subNoHeader, "Required Header authorization is missing: want one with a valid token")
	}
	cred, ok := parseCredential(text)
	switch {
	case !ok:
		return principal{}, unauthorized(subBadHeader, "The authorization header has a wrong format: want type=master&ver=1.0&sig=SIGNATURE or type=aad&ver=1.0&sig=TOKEN, which may be percent-encoded")
	case cred.kind == "master":
		return s.keys.check(c, cred.signature)
	case cred.kind == "aad":
		return principal{}, unauthorized(subTokensOff, "The server takes no Entra tokens: want a signature with a key")
	}
	return principal{}, unauthorized(subBadHeader, "The authorization token is of type %q: want master or aad", cred.kind)
}

// credential is an authorization header.
type credential struct {
	kind      string // master, aad, resource
	signature string
}

// parseCredential reads type=...&ver=1.0&sig=..., percent-encoded or not.
func parseCredential(text string) (credential, bool) {
	if strings.IndexByte(text, '%') >= 0 {
		plain, err := url.PathUnescape(text) // not a query: a bare + is part of a signature
		if err != nil {
			return credential{}, false
		}
		text = plain
	}
	kind, rest, ok := strings.Cut(text, "&")
	version, signature, more := strings.Cut(rest, "&")
	if !ok || !more || version != "ver=1.0" {
		return credential{}, false
	}
	var c credential
	c.kind, ok = strings.CutPrefix(kind, "type=")
	c.signature, more = strings.CutPrefix(signature, "sig=")
	return c, ok && more && c.kind != "" && c.signature != ""
}
