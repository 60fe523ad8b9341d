package cosmosrest

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/cosmosrest/internal/sql"
	"github.com/millrace/changefeed/docstore"
)

func (c *call) patchItem() error {
	if err := c.allow(actionReplace); err != nil {
		return err
	}
	p, id, err := c.item(nil)
	if err != nil {
		return err
	}
	body, err := c.body(maxItem)
	if err != nil {
		return err
	}
	ops, cond, err := parsePatch(body)
	if err != nil {
		return err
	}
	w := changefeed.Write{Op: changefeed.WritePatch, ID: id, Patch: ops, IfMatch: quoted(c.header("If-Match"))}
	return c.write(p, w, cond)
}

// parsePatch reads a patch: {"condition", "operations"}, or the bare operations.
func parsePatch(body []byte) ([]changefeed.PatchOp, docstore.Condition, error) {
	var patch struct {
		Condition  string
		Operations []changefeed.PatchOp
	}
	var err error
	if bytes.HasPrefix(bytes.TrimLeft(body, " \t\r\n"), []byte("[")) {
		err = json.Unmarshal(body, &patch.Operations)
	} else {
		err = json.Unmarshal(body, &patch)
	}
	switch {
	case err != nil:
		return nil, nil, badRequest(`body is no patch: %v: want {"operations":[{"op":"set","path":"/a","value":1}]}`, err)
	case len(patch.Operations) == 0 || len(patch.Operations) > maxPatchOps:
		return nil, nil, badRequest("patch has %d operations: want 1 to %d", len(patch.Operations), maxPatchOps)
	case patch.Condition == "":
		return patch.Operations, nil, nil
	}
	cond, err := parseCondition(patch.Condition)
	return patch.Operations, cond, err
}

const maxPatchOps = 10

// parseCondition reads the condition of a patch, as in "from c where c.v = 1".
func parseCondition(text string) (docstore.Condition, error) {
	q, err := sql.ParseCondition(text)
	if err != nil {
		return nil, badRequest("condition is %q: %v", text, err)
	}
	b, err := q.Bind(nil)
	if err != nil {
		return nil, badRequest("condition is %q: %v", text, err)
	}
	return func(body []byte) (bool, error) {
		met, err := b.Condition(body)
		if err != nil {
			return false, fmt.Errorf("%w: condition is %q: %w", changefeed.ErrBadRequest, text, err)
		}
		return met, nil
	}, nil
}
