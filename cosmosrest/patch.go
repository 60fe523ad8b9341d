package cosmosrest

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/millrace/changefeed/cosmosrest/internal/auth"
	"github.com/millrace/changefeed/cosmosrest/internal/sql"
	"github.com/millrace/changefeed/cosmosrest/internal/wire"
	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
)

// Patches. The query engine compiles the condition of a patch, and the store's committer evaluates the condition
// between reading and writing the item, so no other write can come in between.

// patchItem changes parts of an item.
func patchItem(c *call) error {
	if err := c.allowAction(auth.Replace); err != nil {
		return err
	}
	p, err := c.findItem(nil)
	if err != nil {
		return err
	}
	body, _, err := c.readItemBody()
	if err != nil {
		return err
	}
	ops, cond, err := parsePatch(body)
	if err != nil {
		return err
	}
	return c.writeItems(p.logical, docstore.Write{Write: feed.Write{
		Op: feed.WritePatch, ID: p.id, Patch: ops,
		IfMatch: c.in.IfMatch(),
	}, If: cond})
}

// parsePatch parses a patch: {"condition", "operations"}, or only the operations, as in batches.
func parsePatch(body []byte) ([]feed.PatchOp, docstore.Condition, error) {
	var patch struct {
		Condition  string
		Operations []feed.PatchOp
	}
	var err error
	if bytes.HasPrefix(bytes.TrimLeft(body, " \t\r\n"), []byte("[")) {
		err = json.Unmarshal(body, &patch.Operations)
	} else {
		err = json.Unmarshal(body, &patch)
	}
	switch {
	case err != nil:
		return nil, nil,
			wire.BadRequest(`body is no patch: %v: want {"operations":[{"op":"set","path":"/a","value":1}]}`, err)
	case len(patch.Operations) == 0 || len(patch.Operations) > wire.MaxPatchOps:
		return nil, nil, wire.BadRequest("patch has %d operations: want 1 to %d", len(patch.Operations),
			wire.MaxPatchOps)
	case patch.Condition == "":
		return patch.Operations, nil, nil
	}
	cond, err := parseCondition(patch.Condition)
	return patch.Operations, cond, err
}

// parseCondition compiles the condition of a patch, such as "from c where c.v = 1". If the condition fails on an
// item, this is the client's error.
func parseCondition(text string) (docstore.Condition, error) {
	q, err := sql.ParseCondition(text)
	if err != nil {
		return nil, wire.BadRequest("condition is %q: %v", text, err)
	}
	b, err := q.Bind(nil)
	if err != nil {
		return nil, wire.BadRequest("condition is %q: %v", text, err)
	}
	return func(body []byte) (bool, error) {
		met, err := b.Condition(body)
		if err != nil {
			return false, fmt.Errorf("%w: condition is %q: %w", feed.ErrBadRequest, text, err)
		}
		return met, nil
	}, nil
}
