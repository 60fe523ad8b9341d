package auth

import (
	"net/http"
	"slices"

	"github.com/millrace/changefeed/cosmosrest/internal/wire"
)

// Principals: the sender of a request, and the actions that a grant allows on a resource.

// Principal is the sender of a request. The zero value has no rights.
type Principal struct {
	id     string // of an Entra principal; empty for a key
	all    bool   // has all rights
	grants []grant
	token  *Permission // of a resource token; nil for all others
}

// The principals of the keys.
var (
	owner  = Principal{all: true}
	reader = Principal{grants: []grant{{actions: slices.Concat(readerActions, []string{ReadManaged})}}}
)

// Resource is the subject of a request, by ids: a container, a database, or the set of all databases.
type Resource struct {
	Database, Container string // empty if there is none
	Account             bool   // the account itself, in every scope, because all clients read it first

	// These are only set for resource tokens.
	Kind string // of the resource in the path
	Item string // id; empty if the request is not about a single item
	Key  string // partition key of the request, in canonical form; empty if there is none
	Plan bool   // the request asks for a query plan
}

// HasToken reports whether the principal has a resource token.
func (p *Principal) HasToken() bool { return p.token != nil }

// May reports whether the principal may do an action on a resource. on is a function, because finding the names of a
// resource needs a lookup in the store, and principals with keys do not need the names.
func (p *Principal) May(action string, on func() Resource) bool {
	if p.token != nil {
		return p.token.allows(action, on())
	}
	return p.all || slices.ContainsFunc(p.grants, func(g grant) bool {
		return slices.Contains(g.actions, action) && g.holds(on)
	})
}

// holds reports whether a resource is in the scope of a grant.
func (g *grant) holds(resource func() Resource) bool {
	if g.database == "" {
		return true
	}
	on := resource()
	return on.Account || on.Database == g.database && (g.container == "" || on.Container == g.container)
}

// Sub-statuses of refused actions. Their status is 403.
const (
	subManageByToken   = 5300 // tokens never grant the management of the account
	subMetadataRefused = 5301 // no role of the principal grants reading metadata
	subNotGranted      = 5302 // no role of the principal grants the action
)

// Refusal returns the 403 of an action that the principal may not do. As in the service, the message names the
// principal, the action and the scope that a role would have to grant.
func (p *Principal) Refusal(action string, on Resource, r *wire.Request) error {
	e := wire.Errorf(http.StatusForbidden, 0, wire.CodeForbidden,
		"Insufficient permissions: the key may only read: want a read-write key")
	e.Bare = true
	if p.token != nil {
		e.Message = "Insufficient permissions provided in the authorization header for the corresponding request. " +
			"Please retry with another authorization header. The resource token does not allow " + r.Method + " " +
			r.Path()
		return e
	}
	if p.id == "" {
		return e
	}
	if action == Manage || action == ReadManaged {
		e.Sub = subManageByToken
		e.Message = "Request blocked by Auth: The given request [" + r.Method + " " + r.Path() +
			"] cannot be authorized by an Entra token: want a key"
		return e
	}
	e.Sub = subNotGranted
	if action == ReadMetadata {
		e.Sub = subMetadataRefused
	}
	e.Message = "Request blocked by Auth: Request is blocked because principal [" + p.id +
		"] does not have required RBAC permissions to perform action [" + action + "] on resource [" + on.link() + "]"
	return e
}

// link returns the scope in the service's form.
func (on Resource) link() string {
	switch {
	case on.Database == "":
		return "/"
	case on.Container == "":
		return "dbs/" + on.Database
	}
	return "dbs/" + on.Database + "/colls/" + on.Container
}
