package cosmosrest

import (
	"net/http"

	"github.com/millrace/changefeed/cosmosrest/internal/auth"
	"github.com/millrace/changefeed/cosmosrest/internal/meter"
	"github.com/millrace/changefeed/cosmosrest/internal/wire"
	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
)

// Operations on all items of a partition key, and the feed of conflicts.

// keyDeletion is the only operation in a path of operations.
const keyDeletion = "partitionkeydelete"

// runOperation deletes all items of a partition key. The service does this in the background and answers at once. Here
// the items are deleted before the answer, in transactions, so a reader never sees half of a transaction.
func runOperation(c *call) error {
	if c.in.Target.ID != keyDeletion {
		return wire.NotFound(0, "the path %q names no operation of this server: want operations/%s", c.in.Path(),
			keyDeletion)
	}
	if err := c.allowAction(auth.Delete); err != nil {
		return err
	}
	cont, err := c.targetContainer()
	if err != nil {
		return err
	}
	key, err := c.in.Key()
	if err != nil {
		return err
	}
	if key == "" {
		return wire.BadRequest(wire.NoKey + " Want the header x-ms-documentdb-partitionkey")
	}
	l, err := c.findLogical(cont, key)
	if err != nil {
		return err
	}
	if err := l.refusePart("Partition key provided either doesn't correspond to definition in the collection or " +
		"doesn't match partition key field values specified in the document."); err != nil {
		return err
	}
	if err := deleteAll(c, l); err != nil {
		return err
	}
	return c.sendReply(http.StatusOK, nil)
}

// refusePart refuses a key that lacks its last levels, with a sentence of the service.
func (p *logical) refusePart(sentence string) error {
	if p.Whole() {
		return nil
	}
	return wire.Errorf(http.StatusBadRequest, wire.SubKeyMismatch, wire.CodeBadRequest,
		"%s The key is %s: want all levels", sentence, p.Key())
}

// deleteAll deletes the items of a partition key that exist when it begins. An item that another request deletes
// meanwhile is deleted, too.
func deleteAll(c *call, l logical) error {
	var ids []string
	for item, err := range l.cont.Logical(c.ctx, l.Key(), 0) {
		if err != nil {
			return err
		}
		if err := c.work.Work(meter.DocWork); err != nil {
			return err
		}
		ids = append(ids, item.ID)
	}
	for len(ids) > 0 {
		n := min(len(ids), wire.MaxBatchOps)
		if err := deleteItems(c, l, ids[:n]); err != nil {
			return err
		}
		ids = ids[n:]
	}
	return nil
}

// deleteItems deletes items in a transaction. If one of them is gone already, each is deleted by itself.
func deleteItems(c *call, l logical, ids []string) error {
	writes := make([]docstore.Write, len(ids))
	for i, id := range ids {
		writes[i] = docstore.Write{Write: feed.Write{Op: feed.WriteDelete, ID: id}}
	}
	done, err := l.Commit(c.ctx, writes)
	c.chargeRequest(l.cont, done.Partition.ID, done.Charge)
	c.out.SetSession(done.Partition.ID, done.Newest)
	switch {
	case err == nil:
		c.written = true
		return nil
	case itemError(err).Status != http.StatusNotFound:
		return err
	case len(ids) == 1:
		return nil
	}
	for i := range ids {
		if err := deleteItems(c, l, ids[i:i+1]); err != nil {
			return err
		}
	}
	return nil
}

// listConflicts lists the conflicts of a container. There are none, because there is a single region.
func listConflicts(c *call) error { return noConflicts(c, resources.listPage) }

// queryConflicts queries the conflicts of a container.
func queryConflicts(c *call) error {
	if !c.in.IsQuery() {
		e := wire.Errorf(http.StatusMethodNotAllowed, 0, wire.CodeNotAllowed,
			"conflicts cannot be created: want a query, with the header x-ms-documentdb-isquery: True")
		e.Allow = "GET, POST"
		return e
	}
	return noConflicts(c, resources.queryPage)
}

// noConflicts calls answer with an empty set.
func noConflicts(c *call, answer func(resources, *call) error) error {
	if err := c.allowAction(auth.ReadChangeFeed); err != nil {
		return err
	}
	cont, err := c.targetContainer()
	if err != nil {
		return err
	}
	return answer(resources{member: "Conflicts", rid: cont.RID()}, c)
}

// readConflict refuses the read of a conflict.
func readConflict(c *call) error { return missingConflict(c, auth.ReadItem) }

// deleteConflict refuses the deletion of a conflict.
func deleteConflict(c *call) error { return missingConflict(c, auth.Delete) }

// missingConflict refuses an action on a conflict.
func missingConflict(c *call, action string) error {
	if err := c.allowAction(action); err != nil {
		return err
	}
	if _, err := c.targetContainer(); err != nil {
		return err
	}
	return wire.NotFound(0, wire.NoResource+": there is no conflict %q: a single region has none", c.in.Target.ID)
}
