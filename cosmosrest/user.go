package cosmosrest

import (
	"cmp"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/millrace/changefeed/cosmosrest/internal/auth"
	"github.com/millrace/changefeed/cosmosrest/internal/wire"
	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/cosmosdb/service"
)

// Users are named sets of permissions. They are stored in the metadata of their database, so they are deleted together
// with the database. Nobody signs in as a user: only the tokens of the permissions have rights (permission.go).

// user is a user of a database.
type user struct {
	version
	ID, RID     string
	Permissions []permission `json:",omitempty"`
}

// maxUsers is how many users, and permissions of a user, there can be. The service has higher limits; here all of them
// are a single record of the store.
const maxUsers = 1000

// newChildRID returns the resource id of a user or permission: the owner's resource id and random bytes, of which the
// first and last show that the resource is neither a container nor an item.
func newChildRID(owner string, random int) string {
	rid, _ := base64.StdEncoding.DecodeString(strings.ReplaceAll(owner, "-", "/")) // cannot fail: it is ours
	own := make([]byte, random)
	_, _ = rand.Read(own) // never fails, as documented
	own[0] &= 0x7f
	own[random-1] = 0
	return strings.ReplaceAll(base64.StdEncoding.EncodeToString(append(rid, own...)), "/", "-")
}

// findUser returns the user of a database with an id or resource id.
func (m *meta) findUser(id string) (*user, error) {
	at := slices.IndexFunc(m.Users, func(u user) bool { return u.ID == id || u.RID == id })
	if at < 0 {
		return nil, wire.NotFound(0, wire.NoResource+": there is no user %q", id)
	}
	return &m.Users[at], nil
}

// isTaken reports whether another user has the id.
func (m *meta) isTaken(id string, besides *user) bool {
	return slices.ContainsFunc(m.Users, func(u user) bool {
		return u.ID == id && (besides == nil || u.RID != besides.RID)
	})
}

// updateUsers changes the users of the database in the path. If change fails, nothing is changed.
func (c *call) updateUsers(change func(d docstore.Database, m *meta) error) error {
	d, err := c.targetDatabase()
	if err != nil {
		return err
	}
	_, err = c.s.db.UpdateDatabase(c.ctx, d.ID, func(raw json.RawMessage) (json.RawMessage, error) {
		m := readMeta(raw)
		m.version = m.at(d.ETag, d.Changed) // the version of the database stays the same
		if err := change(d, &m); err != nil {
			return nil, err
		}
		return wire.Encode(m), nil
	})
	c.out.Charge += service.ManageCharge
	return err
}

// postUsers creates a user, or queries the users of a database.
func postUsers(c *call) error {
	if c.in.IsQuery() {
		return eachUser(c, resources.queryPage)
	}
	if err := c.allowAction(auth.Manage); err != nil {
		return err
	}
	id, err := readID(c)
	if err != nil {
		return err
	}
	made, status := user{version: newVersion(), ID: id}, http.StatusCreated
	err = c.updateUsers(func(d docstore.Database, m *meta) error {
		if now, err := m.findUser(id); err == nil && c.in.Flag(wire.HeaderUpsert) {
			now.version, status = made.version, http.StatusOK
			made = *now
			return nil
		}
		switch {
		case m.isTaken(id, nil):
			return fmt.Errorf("user %q exists: %w", id, feed.ErrConflict)
		case len(m.Users) >= maxUsers:
			return wire.BadRequest("database %q has %d users: want at most as many", d.ID, maxUsers)
		}
		made.RID = newChildRID(d.RID, 4)
		m.Users = append(m.Users, made)
		return nil
	})
	if err != nil {
		return err
	}
	return replyUser(c, status, &made)
}

// readID reads the id of the resource in the body.
func readID(c *call) (string, error) {
	p, err := readProperties(&c.in)
	if err != nil {
		return "", err
	}
	return p.id()
}

// listUsers lists the users of a database.
func listUsers(c *call) error { return eachUser(c, resources.listPage) }

// eachUser collects the users of a database and calls answer with them.
func eachUser(c *call, answer func(resources, *call) error) error {
	if err := c.allowAction(auth.ReadMetadata); err != nil {
		return err
	}
	d, err := c.targetDatabase()
	if err != nil {
		return err
	}
	all := resources{member: "Users", rid: d.RID}
	for _, u := range readMeta(d.Meta).Users {
		all.all = append(all.all, resource{u.ID, u.json(d)})
	}
	c.out.Set(wire.AnswerContentPath, d.RID)
	c.out.Set(wire.AnswerAltContentPath, "dbs/"+d.ID)
	c.setQuota("users", maxUsers, len(all.all))
	slices.SortFunc(all.all, func(a, b resource) int { return cmp.Compare(a.id, b.id) })
	return answer(all, c)
}

// readUser answers with a user.
func readUser(c *call) error {
	if err := c.allowAction(auth.ReadMetadata); err != nil {
		return err
	}
	u, err := c.targetUser()
	if err != nil {
		return err
	}
	return replyUser(c, http.StatusOK, u)
}

// targetUser returns the user in the path.
func (c *call) targetUser() (*user, error) {
	d, err := c.targetDatabase()
	if err != nil {
		return nil, err
	}
	m := readMeta(d.Meta)
	return m.findUser(c.in.Target.User)
}

// replaceUser renames a user, who keeps the permissions.
func replaceUser(c *call) error {
	if err := c.allowAction(auth.Manage); err != nil {
		return err
	}
	id, err := readID(c)
	if err != nil {
		return err
	}
	var now user
	err = c.updateUsers(func(_ docstore.Database, m *meta) error {
		u, err := m.findUser(c.in.Target.User)
		if err != nil {
			return err
		}
		if err := c.in.RefuseOther(u.ETag); err != nil {
			return err
		}
		if m.isTaken(id, u) {
			return fmt.Errorf("user %q exists: %w", id, feed.ErrConflict)
		}
		u.version, u.ID = newVersion(), id
		now = *u
		return nil
	})
	if err != nil {
		return err
	}
	return replyUser(c, http.StatusOK, &now)
}

// deleteUser deletes a user with all permissions. As in the service, the tokens of the permissions count until their
// time is over.
func deleteUser(c *call) error {
	if err := c.allowAction(auth.Manage); err != nil {
		return err
	}
	err := c.updateUsers(func(_ docstore.Database, m *meta) error {
		u, err := m.findUser(c.in.Target.User)
		if err != nil {
			return err
		}
		if err := c.in.RefuseOther(u.ETag); err != nil {
			return err
		}
		rid := u.RID
		m.Users = slices.DeleteFunc(m.Users, func(u user) bool { return u.RID == rid })
		return nil
	})
	if err != nil {
		return err
	}
	return c.sendReply(http.StatusNoContent, nil)
}

// replyUser answers with a user.
func replyUser(c *call, status int, u *user) error {
	d, err := c.targetDatabase()
	if err != nil {
		return err
	}
	c.out.Set(wire.AnswerContentPath, d.RID)
	c.out.Set(wire.AnswerAltContentPath, "dbs/"+d.ID)
	c.setQuota("users", maxUsers, len(readMeta(d.Meta).Users))
	return c.replyResource(status, u.version, u.json(d))
}

// self returns the link of a user by resource ids.
func (u *user) self(d docstore.Database) string { return "dbs/" + d.RID + "/users/" + u.RID + "/" }

// json returns a user as clients see it.
func (u *user) json(d docstore.Database) []byte {
	p := properties{"_permissions": wire.Encode("permissions/")}
	p.setIdentity(u.ID, u.RID, u.self(d), u.version)
	return wire.Encode(p)
}
