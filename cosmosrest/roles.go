package cosmosrest

import (
	"net/http"
	"slices"
)

// Actions that roles grant, by the service's names. Only keys may manage.
const (
	account              = "Microsoft.DocumentDB/databaseAccounts/"
	containers           = account + "sqlDatabases/containers/"
	actionReadMetadata   = account + "readMetadata"
	actionQuery          = containers + "executeQuery"
	actionReadChangeFeed = containers + "readChangeFeed"
	actionCreate         = containers + "items/create"
	actionReadItem       = containers + "items/read"
	actionReplace        = containers + "items/replace"
	actionUpsert         = containers + "items/upsert"
	actionDelete         = containers + "items/delete"
	actionManage         = "manage" // databases, containers, offers, splits
)

// The actions of the service's two built-in roles.
var (
	readerActions      = []string{actionReadMetadata, actionQuery, actionReadChangeFeed, actionReadItem}
	contributorActions = append([]string{actionCreate, actionReplace, actionUpsert, actionDelete}, readerActions...)
)

// principal is who sends a request. The zero value may do nothing.
type principal struct {
	id     string // of an Entra principal; empty for a key
	all    bool   // may do everything
	grants []grant
}

// grant is a set of actions in one container, one database, or everywhere.
type grant struct {
	database, container string // empty is every
	actions             []string
}

// The principals of the keys.
var (
	owner  = principal{all: true}
	reader = principal{grants: []grant{{actions: readerActions}}}
)

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
