package cosmosrest

import (
	"net/http"
	"net/url"
	"slices"
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

// principal is who sends a request. The zero value may do nothing.
type principal struct {
	id     string // of an Entra principal; empty for a key
	all    bool   // may do everything
	grants []grant
}

// The principals of the keys.
var (
	owner  = principal{all: true}
	reader = principal{grants: []grant{{actions: readerActions}}}
)

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
		return s.tokens.check(c.ctx, cred.signature)
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

// allow refuses an action on the target that who asks may not do.
func (c *call) allow(action string) error {
	if c.who.all {
		return nil
	}
	for _, g := range c.who.grants {
		if slices.Contains(g.actions, action) && c.within(g) {
			return nil
		}
	}
	return c.forbid(action)
}

// within tells whether the target lies in the scope of a grant. The account itself lies
// in every scope: all clients read it first.
func (c *call) within(g grant) bool {
	if g.database == "" || c.target.kind == "" {
		return true
	}
	db, coll := c.names()
	return db == g.database && (g.container == "" || coll == g.container)
}

// names are the ids of the target's database and container, also when the path has
// their resource ids. It finds what [call.container] finds.
func (c *call) names() (db, coll string) {
	t := c.target
	if t.coll != "" {
		if _, err := c.s.db.Container(t.db + "/" + t.coll); err == nil {
			return t.db, t.coll
		}
		if found := c.s.byRID(t.db, t.coll); found != nil {
			return found.Database(), found.ID()
		}
	}
	if _, err := c.s.db.Database(t.db); err == nil {
		return t.db, t.coll
	}
	for _, d := range c.s.db.Databases() {
		if d.RID == t.db {
			return d.ID, t.coll
		}
	}
	return t.db, t.coll
}

// forbid is the 403 of an action.
func (c *call) forbid(action string) error {
	f := newFault(http.StatusForbidden, 0, "Forbidden", "Insufficient permissions: the key may only read: want a read-write key")
	f.gateway = true
	if c.who.id == "" {
		return f
	}
	if action == actionManage {
		f.sub = subManageByToken
		f.message = "Request blocked by Auth: The given request [" + c.r.Method + " " + c.r.URL.Path + "] cannot be authorized by an Entra token: want a key"
		return f
	}
	f.sub = subNotGranted
	if action == actionReadMetadata {
		f.sub = subMetadataRefused
	}
	f.message = "Request blocked by Auth: Request is blocked because principal [" + c.who.id +
		"] does not have required RBAC permissions to perform action [" + action + "] on resource [" + c.resource() + "]"
	return f
}

// resource is the scope that an action needs, in the service's form.
func (c *call) resource() string {
	db, coll := c.names()
	switch {
	case db == "":
		return "/"
	case coll == "":
		return "dbs/" + db
	}
	return "dbs/" + db + "/colls/" + coll
}
