package cosmosrest

import (
	"github.com/millrace/changefeed/cosmosrest/internal/auth"
	"github.com/millrace/changefeed/cosmosrest/internal/wire"
	"github.com/millrace/changefeed/docstore"
)

// Users are named sets of permissions. Nobody signs in as a user: only the tokens of the permissions have rights
// (permission.go).

// user is a user of a database.
type user struct {
	element
	Permissions []permission `json:",omitempty"`
}

// users are the users of a database. If a user is renamed, the user keeps the permissions.
var users = &elementKind[user, *user]{
	name: "user", kind: "users", member: "Users", unique: "id", random: 4, read: auth.ReadManaged,
	parse:    readUser,
	check:    func(*call) error { return nil },
	targetID: func(t *wire.Target) string { return t.User },
	listOf: func(_ *wire.Target, d docstore.Database, m *meta) (*[]user, owner, error) {
		return &m.Users, owner{`database "` + d.ID + `"`, d.RID, "dbs/" + d.RID + "/", "dbs/" + d.ID}, nil
	},
	conflicts: func(a, b *user) bool { return a.ID == b.ID },
	rewrite:   func(now, by *user) { now.element = by.element },
	describe: func(_ *call, p properties, _ *user) error {
		p["_permissions"] = wire.Encode("permissions/")
		return nil
	},
}

// readUser reads a user from the body of a request.
func readUser(c *call) (u user, err error) {
	p, err := readProperties(&c.in)
	if err != nil {
		return u, err
	}
	u.ID, err = p.id()
	return u, err
}
