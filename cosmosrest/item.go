package cosmosrest

import (
	"cmp"
	"encoding/json"
	"iter"
	"net/http"
	"strings"

	"github.com/millrace/changefeed/cosmosrest/internal/auth"
	"github.com/millrace/changefeed/cosmosrest/internal/meter"
	"github.com/millrace/changefeed/cosmosrest/internal/wire"
	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/cosmosdb/pkey"
	"github.com/millrace/changefeed/internal/cosmosdb/service"
)

// Single items. A path and the partition key header name an item. Items are read and deleted here, and written in
// write.go and patch.go.

// itemRef is the item of a request: its id and its logical partition.
type itemRef struct {
	logical
	id string
}

// logical is a logical partition together with its physical partition, to which requests are charged.
type logical struct {
	docstore.LogicalPartition
	cont   *docstore.Container
	part   feed.Partition
	newest int64 // newest LSN of the partition before the request
}

// locate finds a partition key.
func locate(cont *docstore.Container, key feed.PartitionKey) (logical, error) {
	p, err := cont.LogicalPartition(key)
	if err != nil {
		return logical{}, err
	}
	l := logical{LogicalPartition: p, cont: cont}
	l.part, l.newest = p.Partition()
	return l, nil
}

// findLogical finds a partition key. If its partition has used up its budget, the request is refused.
func (c *call) findLogical(cont *docstore.Container, key feed.PartitionKey) (logical, error) {
	l, err := locate(cont, key)
	if err != nil {
		return l, err
	}
	c.out.Range = l.part.ID
	return l, c.admitRequest(cont, l.part.ID)
}

// maxKeyValue is the number of bytes of a level of a partition key in the service.
const maxKeyValue = 2048

// refuseLongKey refuses a new item whose key is too long for the service, unless the server is lenient. In containers
// of version 1, whose hash reads the beginning of a key, the service accepts longer keys. Items that exist already are
// read, changed and deleted under every key.
func (p *logical) refuseLongKey(s *Server, op feed.WriteOp) error {
	isNew := op == feed.WriteCreate || op == feed.WriteUpsert
	if !isNew || s.o.Lenient || len(p.Key()) <= maxKeyValue || p.cont.Spec().HashVersion == 1 {
		return nil
	}
	var levels []any
	_ = json.Unmarshal([]byte(p.Key()), &levels) // cannot fail: it is in canonical form
	for i, level := range levels {
		if text, _ := level.(string); len(text) > maxKeyValue {
			return wire.BadRequest("level %d of the partition key has %d bytes: want at most %d", i+1, len(text), maxKeyValue)
		}
	}
	return nil
}

// findItem finds the item that the path names. On a lenient server, the partition key may come from body, if body is
// set.
func (c *call) findItem(body []byte) (ref itemRef, err error) {
	cont, err := c.targetContainer()
	if err != nil {
		return ref, err
	}
	if err := c.s.gatewayTakes(c.in.Target.ID); err != nil {
		return ref, err
	}
	key, err := c.in.Key()
	if err != nil {
		return ref, err
	}
	if key == "" && body != nil && c.s.o.Lenient {
		if key, err = cont.KeyOf(body); err != nil {
			return ref, err
		}
	}
	if key == "" {
		return ref, wire.Errorf(http.StatusBadRequest, wire.SubKeyMismatch, wire.CodeBadRequest,
			wire.NoKey+" PartitionKey value must be supplied for this operation: want the header "+
				"x-ms-documentdb-partitionkey")
	}
	if ref.logical, err = c.findLogical(cont, key); err != nil {
		return ref, err
	}
	ref.id = c.in.Target.ID
	// A path contains either ids or resource ids, for all its resources.
	if c.in.Target.Coll == cont.RID() {
		ref.id, err = c.idOf(cont, key, c.in.Target.ID)
	}
	return ref, err
}

// gatewayTakes refuses ids that the service's routing gateway cannot carry in a path, although the service creates
// items with such ids. If the server accepted them, a program would work here and fail there.
func (s *Server) gatewayTakes(id string) error {
	switch {
	case s.o.Dedicated || s.o.Lenient:
	case strings.ContainsAny(id, "\r\t\n"):
		return wire.BadRequest("item id %q has a tab or line break: the gateway cannot find such items", id)
	case strings.ContainsAny(id, `%/\#`) || strings.HasSuffix(id, " "):
		return wire.Errorf(http.StatusUnauthorized, 0, wire.CodeUnauthorized,
			`item id %q ends in a blank or has one of %% / \ #: the gateway computes another signature for such items`,
			id)
	}
	return nil
}

// idOf returns the id of the item with a resource id. If there is no such item, idOf returns the resource id, which
// is then not found as an id. There is no index of resource ids, so idOf reads the logical partition.
func (c *call) idOf(cont *docstore.Container, key feed.PartitionKey, rid string) (string, error) {
	id, err := findRID(c, cont.Logical(c.ctx, key, 0), rid)
	return cmp.Or(id, rid), err
}

// findRID returns the id of the item with a resource id, or "" if the items do not have it.
func findRID(c *call, items iter.Seq2[docstore.Item, error], rid string) (string, error) {
	for item, err := range items {
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
	return "", nil
}

// canonicalKey returns a partition key in canonical form, or "" if the key cannot be read: the operation refuses it.
func canonicalKey(key feed.PartitionKey) string {
	canonical, err := pkey.Canonical(string(key))
	if err != nil {
		return ""
	}
	return string(canonical)
}

// readItem answers with an item, or with 304 if the client already has the item.
func readItem(c *call) error {
	if err := c.allowAction(auth.ReadItem); err != nil {
		return err
	}
	p, err := c.findItem(nil)
	if err != nil {
		return err
	}
	if err := c.in.Consistent(p.part, p.newest); err != nil {
		return err
	}
	item, err := p.Item(c.ctx, p.id)
	size, none := len(item.Body), c.in.Header(wire.HeaderIfNoneMatch)
	same := err == nil && none != "" && wire.Matches(none, item.ETag)
	if same {
		size = 0
	}
	part, newest := p.Partition()
	// Charge and session are set before the error, because a read that finds no item has both.
	c.chargeRequest(p.cont, part.ID, service.ReadCharge(size))
	c.out.SetSession(part.ID, newest)
	if err != nil {
		return err
	}
	c.out.Set(wire.AnswerETag, item.ETag)
	if same {
		return c.sendReply(http.StatusNotModified, nil)
	}
	if match := c.in.Header(wire.HeaderIfMatch); match != "" && !wire.Matches(match, item.ETag) {
		return wire.PreconditionFailed("item %q has the ETag %s: want %s", item.ID, item.ETag, match)
	}
	c.out.SetItemLSN(item.LSN)
	return c.sendDocuments(http.StatusOK, item.Body)
}

// deleteItem deletes an item.
func deleteItem(c *call) error {
	if err := c.allowAction(auth.Delete); err != nil {
		return err
	}
	p, err := c.findItem(nil)
	if err != nil {
		return err
	}
	return c.writeItems(p.logical, docstore.Write{Write: feed.Write{
		Op: feed.WriteDelete, ID: p.id,
		IfMatch: c.in.IfMatch(),
	}})
}
