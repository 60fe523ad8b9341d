package items

import (
	"context"
	"encoding/json"

	"github.com/millrace/changefeed/cmd/changefeed/internal/place"
	"github.com/millrace/changefeed/internal/cosmosdb/rawjson"
)

// A Page is a page of a query.
type Page struct {
	Rows   []json.RawMessage
	Next   string   // the continuation; empty after the last page
	Charge *float64 // request units; nil if unknown
}

// Page reads the page of a query that follows a continuation, with Max rows at most; empty is the first.
func (t *Target) Page(ctx context.Context, q Query, after string) (p Page, err error) {
	if q.Key != "" {
		if err := t.checkKey(q.Key); err != nil {
			return p, err
		}
	}
	if err := q.checkParameters(); err != nil {
		return p, err
	}
	request, err := t.queryRequest(q)
	if err != nil {
		return p, err
	}
	request.Header["X-Ms-Continuation"] = after
	reply, err := t.page(ctx, request)
	if err != nil {
		return p, err
	}
	if err := t.checkPage(reply.Body); err != nil {
		return p, err
	}
	for row := range rawjson.Elements(rawjson.Lookup(reply.Body, "Documents")) {
		p.Rows = append(p.Rows, row)
	}
	p.Next, p.Charge = reply.Header.Get("X-Ms-Continuation"), reply.Charge()
	return p, nil
}

// Container returns the open container.
func (t *Target) Container() *place.Container { return t.container }
