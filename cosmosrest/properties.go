package cosmosrest

import (
	"encoding/json"
	"maps"
	"net/http"
	"strings"
	"time"

	"github.com/millrace/changefeed/cosmosrest/internal/wire"
)

// The properties of databases, containers and offers are JSON objects. The server knows some members and stores the
// others, so a client gets back all members of its request.

// properties is a client's description of a database, container or offer. Unknown members are kept as the client sent
// them.
type properties map[string]json.RawMessage

// readProperties reads the request's body. A member that is null counts as absent.
func readProperties(in *wire.Request) (properties, error) {
	body, err := in.Body(wire.MaxProperties)
	if err != nil {
		return nil, err
	}
	var p properties
	if err := json.Unmarshal(body, &p); err != nil || p == nil {
		return nil, wire.BadRequest("body is %.100q: want a JSON object", body)
	}
	maps.DeleteFunc(p, func(_ string, v json.RawMessage) bool { return string(v) == "null" })
	return p, nil
}

// decodeMember decodes a member into v. If the member is missing, v stays unchanged.
func (p properties) decodeMember(name, want string, v any) error {
	raw, ok := p[name]
	if !ok {
		return nil
	}
	if err := json.Unmarshal(raw, v); err != nil {
		return wire.BadRequest("%s is %.100s: want %s", name, raw, want)
	}
	return nil
}

// maxName is the largest length, in bytes, of the name of a database or container.
const maxName = 255

// id returns the name of the resource. Unlike the store, the service refuses names that end in white space.
func (p properties) id() (string, error) {
	if p["id"] == nil {
		return "", wire.BadRequest("id is missing: want a name such as %q", "orders")
	}
	var id string
	if err := p.decodeMember("id", "a string", &id); err != nil {
		return "", err
	}
	switch {
	case id == "" || len(id) > maxName:
		return "",
			wire.BadRequest("Ensure to provide a unique non-empty string less than '255' characters. id is %.300q", id)
	case strings.ContainsAny(id, `/\?#`):
		return "",
			wire.BadRequest(`The input name presented contains invalid character. id is %q: want none of / \ ? #`, id)
	case strings.TrimRight(id, " \t\r\n") != id:
		return "", wire.BadRequest("id is %q: want a name that does not end in a blank", id)
	}
	return id, nil
}

// without returns a copy without the members that the server creates.
func (p properties) without(system ...string) properties {
	own := maps.Clone(p)
	for _, name := range system {
		delete(own, name)
	}
	return own
}

// setIdentity sets the members that every resource has.
func (p properties) setIdentity(id, rid, self string, v version) {
	p["id"], p["_rid"], p["_self"] = wire.Encode(id), wire.Encode(rid), wire.Encode(self)
	p["_etag"], p["_ts"] = wire.Encode(v.ETag), wire.Encode(v.Changed)
}

// version is the state of a resource. Clients use versions for conditional writes.
type version struct {
	ETag    string
	Changed int64 // Unix seconds
}

// newVersion returns the version of a resource that changes now.
func newVersion() version { return version{`"` + wire.NewUUID() + `"`, time.Now().Unix()} }

// meta is the server's own record about a database or container, which the store keeps with the database or
// container. If the offer changes, the version of its owner stays the same.
type meta struct {
	version
	Body  properties `json:",omitempty"` // without system properties
	Offer *offer     `json:",omitempty"`
	Users []user     `json:",omitempty"` // of a database
}

// readMeta reads the record. If the resource was created without the server, the record is empty.
func readMeta(raw json.RawMessage) meta {
	var m meta
	if json.Unmarshal(raw, &m) != nil {
		return meta{}
	}
	return m
}

// at returns the version. If the resource was created without the server, this is the store's version.
func (m *meta) at(etag string, changed time.Time) version {
	if m.ETag == "" {
		return version{etag, changed.Unix()}
	}
	return m.version
}

// replyResource sends a database, container or offer. A read may have a condition on the version.
func (c *call) replyResource(status int, v version, body []byte) error {
	read := c.in.Method == http.MethodGet
	if read {
		if err := c.in.RefuseOther(v.ETag); err != nil {
			return err
		}
	}
	c.out.Set(wire.AnswerETag, v.ETag)
	if read && c.in.Has(v.ETag) {
		return c.sendReply(http.StatusNotModified, nil)
	}
	return c.sendReply(status, body)
}
