package cosmosrest

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
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
	element
	Mode     string
	Resource string          // as the client sent it
	Key      json.RawMessage `json:",omitempty"` // resourcePartitionKey as the client sent it

	// What the resource was when the permission was written.
	Database, Container string
	Item                string `json:",omitempty"`
}

// permissions are the permissions of a user.
var permissions = &elementKind[permission, *permission]{
	name: "permission", kind: "permissions", member: "Permissions", unique: "id or resource", random: 8,
	read:     auth.Manage,
	parse:    readDefinition,
	check:    func(c *call) error { _, err := readExpiry(c); return err },
	targetID: func(t *wire.Target) string { return t.ID },
	listOf: func(t *wire.Target, d docstore.Database, m *meta) (*[]permission, owner, error) {
		all, in, _ := users.listOf(t, d, m) // never fails
		u, err := users.find(*all, in, t.User)
		if err != nil {
			return nil, in, err
		}
		return &u.Permissions, owner{
			`user "` + u.ID + `"`, u.RID, in.self + "users/" + u.RID + "/", in.path + "/users/" + u.ID,
		}, nil
	},
	conflicts: func(a, b *permission) bool { return a.ID == b.ID || a.resource() == b.resource() },
	rewrite:   func(now, by *permission) { *now = *by },
	describe:  describePermission,
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

// describePermission sets the members of a permission as clients see it, with a new token.
func describePermission(c *call, body properties, p *permission) error {
	expiry, err := readExpiry(c)
	if err != nil {
		return err
	}
	now := time.Now()
	body["permissionMode"], body["resource"] = wire.Encode(p.Mode), wire.Encode(p.Resource)
	body["_token"] = wire.Encode(c.s.authority.IssueToken(auth.Permission{
		Database: p.Database, Container: p.Container, Item: p.Item, Key: p.partitionKey(),
		Write: strings.EqualFold(p.Mode, modeAll),
		From:  now.Unix(), Until: now.Add(expiry).Unix(),
	}))
	if p.Key != nil {
		body["resourcePartitionKey"] = p.Key
	}
	return nil
}
