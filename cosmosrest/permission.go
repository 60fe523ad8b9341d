package cosmosrest

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/millrace/changefeed/cosmosrest/internal/auth"
	"github.com/millrace/changefeed/cosmosrest/internal/meter"
	"github.com/millrace/changefeed/cosmosrest/internal/wire"
	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/cosmosdb/pkey"
	"github.com/millrace/changefeed/internal/cosmosdb/service"
)

// Permissions say what the owner of a resource token may do in a container, with a partition key, or with an item.
// Each answer with a permission contains a new token. Only the owner of a read-write key sees permissions.

// permission is a permission of a user.
type permission struct {
	version
	ID, RID  string
	Mode     string
	Resource string          // as the client sent it
	Key      json.RawMessage `json:",omitempty"` // resourcePartitionKey as the client sent it

	// What the resource was when the permission was written.
	Database, Container string
	Item                string `json:",omitempty"`
}

// The modes of permissions.
const (
	modeRead = "Read"
	modeAll  = "All"
)

// How long a resource token counts, in seconds. The client may ask for another time.
const (
	usualExpiry = 3600
	leastExpiry = 10
	mostExpiry  = 86400
)

// findPermission returns the permission of a user with an id or resource id.
func (u *user) findPermission(id string) (*permission, error) {
	at := slices.IndexFunc(u.Permissions, func(p permission) bool { return p.ID == id || p.RID == id })
	if at < 0 {
		return nil, wire.NotFound(0, wire.NoResource+": user %q has no permission %q", u.ID, id)
	}
	return &u.Permissions[at], nil
}

// conflicts reports whether the user has another permission with this id, or for the same resource.
func (u *user) conflicts(with *permission) bool {
	return slices.ContainsFunc(u.Permissions, func(p permission) bool {
		return p.RID != with.RID && (p.ID == with.ID || p.resource() == with.resource())
	})
}

// resource returns a text that is the same for permissions for the same resource.
func (p *permission) resource() string {
	return string(wire.Encode([]string{p.Database, p.Container, p.Item, p.partitionKey()}))
}

// partitionKey returns the partition key in canonical form; empty if the permission is for all keys.
func (p *permission) partitionKey() string {
	if p.Key == nil {
		return ""
	}
	key, _ := pkey.Canonical(string(p.Key)) // cannot fail: checked when it was received
	return string(key)
}

// readDefinition reads a permission from the body of a request.
func readDefinition(c *call) (p permission, err error) {
	body, err := readProperties(&c.in)
	if err != nil {
		return p, err
	}
	if p.ID, err = body.id(); err != nil {
		return p, err
	}
	if err := body.decodeMember("permissionMode", "Read or All", &p.Mode); err != nil {
		return p, err
	}
	if !strings.EqualFold(p.Mode, modeRead) && !strings.EqualFold(p.Mode, modeAll) {
		return p, wire.BadRequest("permissionMode is %q: want Read or All", p.Mode)
	}
	if err := body.decodeMember("resource", "the link of a container or item", &p.Resource); err != nil {
		return p, err
	}
	if p.Key = body["resourcePartitionKey"]; p.Key != nil {
		if _, err := pkey.Canonical(string(p.Key)); err != nil {
			return p, err
		}
	}
	return p, p.resolve(c)
}

// resolve finds the resource of the permission.
func (p *permission) resolve(c *call) error {
	t, err := wire.ParsePath(p.Resource)
	if err != nil || t.Feed || t.Kind != "colls" && t.Kind != "docs" {
		return wire.BadRequest("resource is %.300q: want the link of a container or item, such as dbs/shop/colls/orders",
			p.Resource)
	}
	cont, err := c.s.db.Container(t.DB + "/" + t.Coll)
	if err != nil {
		if cont, err = c.s.byRID(t.DB, t.Coll), nil; cont == nil {
			return p.keepUnknown(t)
		}
	}
	p.Database, p.Container, p.Item = cont.Database(), cont.ID(), t.ID
	if t.Kind == "docs" && t.Coll == cont.RID() {
		p.Item, err = itemWithRID(c, cont, t.ID)
	}
	return err
}

// keepUnknown accepts a resource that does not exist if the resource is named by resource ids, as the service does. The
// token of such a permission opens nothing, because resource ids are not given twice.
func (p *permission) keepUnknown(t wire.Target) error {
	const idBytes, collectionBytes = 4, 8 // the resource id of a container begins with that of its database
	if db, coll := decodeRID(t.DB), decodeRID(t.Coll); len(db) != idBytes || len(coll) != collectionBytes ||
		!bytes.HasPrefix(coll, db) {
		return wire.NotFound(0, wire.NoResource+": resource is %q: there is no such container", p.Resource)
	}
	p.Database, p.Container, p.Item = t.DB, t.Coll, t.ID
	return nil
}

// decodeRID returns the bytes of a resource id, which is base64 with a hyphen instead of a slash, or nil.
func decodeRID(rid string) []byte {
	id, err := base64.StdEncoding.DecodeString(strings.ReplaceAll(rid, "-", "/"))
	if err != nil {
		return nil
	}
	return id
}

// itemWithRID returns the id of the item with a resource id. There is no index of resource ids, so itemWithRID reads
// the container.
func itemWithRID(c *call, cont *docstore.Container, rid string) (string, error) {
	for item, err := range cont.Items(c.ctx, feed.FullRange(), "") {
		if err != nil {
			return "", err
		}
		if err := c.work.Work(meter.DocWork + len(item.Body)); err != nil {
			return "", err
		}
		if service.SystemText(item.Body, "_rid") == rid {
			return item.ID, nil
		}
	}
	return "", wire.NotFound(0, wire.NoResource+": there is no item %q in container %q", rid, cont.ID())
}

// readExpiry returns how long the token of the answer counts.
func readExpiry(c *call) (time.Duration, error) {
	text := c.in.Header(wire.HeaderExpiry)
	if text == "" {
		return usualExpiry * time.Second, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < leastExpiry || n > mostExpiry {
		return 0, wire.BadRequest("x-ms-documentdb-expiry-seconds is %.64q: want %d to %d", text, leastExpiry,
			mostExpiry)
	}
	return time.Duration(n) * time.Second, nil
}

// postPermissions creates a permission, replaces it if the request is an upsert, or queries the permissions of a user.
func postPermissions(c *call) error {
	if c.in.IsQuery() {
		return eachPermission(c, resources.queryPage)
	}
	return writePermission(c, func(u *user, p *permission) error {
		if now, err := u.findPermission(p.ID); err == nil && c.in.Flag(wire.HeaderUpsert) {
			return u.replacePermission(now, p)
		}
		switch {
		case u.conflicts(p):
			return fmt.Errorf("user %q has a permission with this id or resource: %w", u.ID, feed.ErrConflict)
		case len(u.Permissions) >= maxUsers:
			return wire.BadRequest("user %q has %d permissions: want at most as many", u.ID, maxUsers)
		}
		p.RID = newChildRID(u.RID, 8)
		u.Permissions = append(u.Permissions, *p)
		return nil
	})
}

// replacePermission changes a permission. As in the service, tokens that were issued before count until their time is
// over.
func replacePermission(c *call) error {
	return writePermission(c, func(u *user, p *permission) error {
		now, err := u.findPermission(c.in.Target.ID)
		if err != nil {
			return err
		}
		if err := c.in.RefuseOther(now.ETag); err != nil {
			return err
		}
		return u.replacePermission(now, p)
	})
}

// replacePermission replaces a permission of the user by another with the same resource id.
func (u *user) replacePermission(now, by *permission) error {
	if by.RID = now.RID; u.conflicts(by) {
		return fmt.Errorf("user %q has a permission with this id or resource: %w", u.ID, feed.ErrConflict)
	}
	*now = *by
	return nil
}

// writePermission carries out a write of the permission in the body.
func writePermission(c *call, write func(*user, *permission) error) error {
	if err := c.allowAction(auth.Manage); err != nil {
		return err
	}
	status := http.StatusCreated
	p, err := readDefinition(c)
	if err != nil {
		return err
	}
	if _, err := readExpiry(c); err != nil {
		return err
	}
	p.version = newVersion()
	err = c.updateUsers(func(_ docstore.Database, m *meta) error {
		u, err := m.findUser(c.in.Target.User)
		if err != nil {
			return err
		}
		before := len(u.Permissions)
		if err := write(u, &p); err != nil {
			return err
		}
		if status = http.StatusOK; len(u.Permissions) > before {
			status = http.StatusCreated
		}
		return nil
	})
	if err != nil {
		return err
	}
	return replyPermission(c, status, &p)
}

// listPermissions lists the permissions of a user.
func listPermissions(c *call) error { return eachPermission(c, resources.listPage) }

// eachPermission collects the permissions of a user and calls answer with them.
func eachPermission(c *call, answer func(resources, *call) error) error {
	if err := c.allowAction(auth.Manage); err != nil {
		return err
	}
	expiry, err := readExpiry(c)
	if err != nil {
		return err
	}
	d, u, err := ownerOfPermissions(c)
	if err != nil {
		return err
	}
	all := resources{member: "Permissions", rid: u.RID}
	for i := range u.Permissions {
		p := &u.Permissions[i]
		all.all = append(all.all, resource{p.ID, p.json(c, u.self(d), expiry)})
	}
	slices.SortFunc(all.all, func(a, b resource) int { return cmp.Compare(a.id, b.id) })
	return answer(all, c)
}

// ownerOfPermissions returns the user in the path, and sets the user as the owner in the answer.
func ownerOfPermissions(c *call) (docstore.Database, *user, error) {
	d, err := c.targetDatabase()
	if err != nil {
		return d, nil, err
	}
	m := readMeta(d.Meta)
	u, err := m.findUser(c.in.Target.User)
	if err != nil {
		return d, nil, err
	}
	c.out.Set(wire.AnswerContentPath, u.RID)
	c.out.Set(wire.AnswerAltContentPath, "dbs/"+d.ID+"/users/"+u.ID)
	c.setQuota("permissions", maxUsers, len(u.Permissions))
	return d, u, nil
}

// readPermission answers with a permission, and a new token.
func readPermission(c *call) error {
	if err := c.allowAction(auth.Manage); err != nil {
		return err
	}
	u, err := c.targetUser()
	if err != nil {
		return err
	}
	p, err := u.findPermission(c.in.Target.ID)
	if err != nil {
		return err
	}
	return replyPermission(c, http.StatusOK, p)
}

// deletePermission deletes a permission. As in the service, its tokens count until their time is over.
func deletePermission(c *call) error {
	if err := c.allowAction(auth.Manage); err != nil {
		return err
	}
	err := c.updateUsers(func(_ docstore.Database, m *meta) error {
		u, err := m.findUser(c.in.Target.User)
		if err != nil {
			return err
		}
		p, err := u.findPermission(c.in.Target.ID)
		if err != nil {
			return err
		}
		if err := c.in.RefuseOther(p.ETag); err != nil {
			return err
		}
		rid := p.RID
		u.Permissions = slices.DeleteFunc(u.Permissions, func(p permission) bool { return p.RID == rid })
		return nil
	})
	if err != nil {
		return err
	}
	return c.sendReply(http.StatusNoContent, nil)
}

// replyPermission answers with a permission.
func replyPermission(c *call, status int, p *permission) error {
	expiry, err := readExpiry(c)
	if err != nil {
		return err
	}
	d, u, err := ownerOfPermissions(c)
	if err != nil {
		return err
	}
	return c.replyResource(status, p.version, p.json(c, u.self(d), expiry))
}

// json returns a permission as clients see it, with a new token.
func (p *permission) json(c *call, owner string, expiry time.Duration) []byte {
	now := time.Now()
	body := properties{
		"permissionMode": wire.Encode(p.Mode), "resource": wire.Encode(p.Resource),
		"_token": wire.Encode(c.s.authority.IssueToken(auth.Permission{
			Database: p.Database, Container: p.Container, Item: p.Item, Key: p.partitionKey(),
			Write: strings.EqualFold(p.Mode, modeAll),
			From:  now.Unix(), Until: now.Add(expiry).Unix(),
		})),
	}
	if p.Key != nil {
		body["resourcePartitionKey"] = p.Key
	}
	body.setIdentity(p.ID, p.RID, owner+"permissions/"+p.RID+"/", p.version)
	return wire.Encode(body)
}
