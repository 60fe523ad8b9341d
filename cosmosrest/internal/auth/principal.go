package auth

import (
	"net/http"
	"slices"

	"github.com/millrace/changefeed/cosmosrest/internal/wire"
)

// Principals: who sends a request, and what a grant lets them do on a resource.

// Principal is who sends a request. The zero value may do nothing.
type Principal struct {
	id     string // of an Entra principal; empty for a key
	all    bool   // may do everything
	grants []grant
}

// The principals of the keys.
var (
	owner  = Principal{all: true}
	reader = Principal{grants: []grant{{actions: readerActions}}}
)

// Resource is the subject of a request, by ids: a container, a database, or the set of them
// all.
type Resource struct {
	Database, Container string // empty for none
	Account             bool   // the account itself, which lies in every scope: all clients read it first
}

// May reports whether the principal may do an action on a resource. The resource is a
// function, because to find its names costs a look into the store, and owners of keys need
// none.
func (p *Principal) May(action string, on func() Resource) bool {
	return p.all || slices.ContainsFunc(p.grants, func(g grant) bool { return slices.Contains(g.actions, action) && g.holds(on) })
}

// holds reports whether a resource lies in the scope of a grant.
func (g *grant) holds(resource func() Resource) bool {
	if g.database == "" {
		return true
	}
	on := resource()
	return on.Account || on.Database == g.database && (g.container == "" || on.Container == g.container)
}

// Sub-statuses of refused actions: 403.
const (
	subManageByToken   = 5300 // no role grants to manage the account
	subMetadataRefused = 5301 // no role grants to read metadata
	subNotGranted      = 5302 // no role grants the action
)

// Refusal is the 403 of an action that the principal may not do, in the service's words,
// which name the principal, the action and the scope that a role would have to grant.
func (p *Principal) Refusal(action string, on Resource, r *wire.Request) error {
	e := wire.Errorf(http.StatusForbidden, 0, wire.CodeForbidden, "Insufficient permissions: the key may only read: want a read-write key")
	e.Bare = true
	if p.id == "" {
		return e
	}
	if action == Manage {
		e.Sub = subManageByToken
		e.Message = "Request blocked by Auth: The given request [" + r.Method + " " + r.Path() + "] cannot be authorized by an Entra token: want a key"
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

// link is the scope in the service's form.
func (on Resource) link() string {
	switch {
	case on.Database == "":
		return "/"
	case on.Container == "":
		return "dbs/" + on.Database
	}
	return "dbs/" + on.Database + "/colls/" + on.Container
}
