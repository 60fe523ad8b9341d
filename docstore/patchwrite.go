package docstore

import (
	"slices"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/cosmosdb/rawjson"
)

// Patches in the committer: a patch reads the document that earlier writes of its group have left.

// patchBody makes the new body of a patch.
func (w *write) patchBody() error {
	e, err := w.tx.group.entry(w.tx.head.c, w.old.addr)
	if err != nil {
		return err
	}
	body, err := applyPatch(e.body, w.Patch)
	if err != nil {
		return err
	}
	d, err := readDocument(body, rawjson.Strict(body), w.tx.head.l.paths, true)
	if err != nil {
		return err
	}
	w.Bare = d.bare
	return w.renderBody(w.tx.head.c, w.tx.head.l, d, false)
}

// copyPatch copies operations for the committer. If a caller's context has ended, the caller may return before the
// committer reads the operations, and may reuse its memory.
func copyPatch(ops []feed.PatchOp) []feed.PatchOp {
	ops = slices.Clone(ops)
	for i := range ops {
		ops[i].Value = slices.Clone(ops[i].Value)
	}
	return ops
}
