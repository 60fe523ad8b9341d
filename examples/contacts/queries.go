package main

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"iter"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/outbox"
)

// View is a contact as a client sees it.
type View struct {
	ID          string  `json:"id"`
	Description string  `json:"description"`
	Email       *string `json:"email"`
	Name        Name    `json:"name"`
	Company     Company `json:"company"`
}

// ErrNotModified: the client has this version already.
var ErrNotModified = errors.New("not modified")

// Get reads a contact and its ETag; it is an [ErrNotModified] when the ETag is among those that are known.
func (s *Contacts) Get(ctx context.Context, id string, known Tags) (v View, etag string, err error) {
	d, err := s.load(ctx, id)
	if err != nil {
		return v, "", err
	}
	if known.Have(d.ETag) {
		return v, d.ETag, ErrNotModified
	}
	c := d.Data
	return View{ID: c.ID, Description: c.Description, Email: c.Email, Name: c.Name, Company: c.Company}, d.ETag, nil
}

// Page is a part of the list of contacts.
type Page struct {
	HasMore bool     `json:"hasMore"`
	Items   []Listed `json:"items"`
}

// Listed is a contact in the list.
type Listed struct {
	ID          string  `json:"id"`
	Email       *string `json:"email"`
	FullName    string  `json:"fullName"`
	CompanyName string  `json:"companyName"`
}

// List reads so many contacts after a continuation, which is empty at first, and the continuation after them, which is
// empty at the end. A contact that is there all the time is in the list; one that changes meanwhile may come again.
func (s *Contacts) List(ctx context.Context, size int, continuation string) (p Page, next string, err error) {
	at, err := parseCursor(continuation)
	if err != nil {
		return p, "", err
	}
	p.Items = []Listed{}
	for d, err := range at.contacts(ctx, s.store) {
		if err != nil {
			return p, "", err
		}
		if len(p.Items) == size {
			p.HasMore = true
			return p, at.String(), nil
		}
		c := d.Data
		p.Items = append(p.Items, Listed{c.ID, c.Email, c.Name.FirstName + " " + c.Name.LastName, c.Company.CompanyName})
	}
	return p, "", nil
}

// A cursor is a place in the list of contacts: what is left to read of the key space. The list comes from the change
// feed, which has the latest version of each document once, so it needs no query engine and works on every store.
type cursor []stretch

// stretch is a part of the key space, and how far it was read.
type stretch struct {
	Min   string `json:"min"`
	Max   string `json:"max"`
	Token string `json:"token,omitempty"` // after which a page was read; empty is the beginning
	LSN   int64  `json:"lsn,omitempty"`   // of the last contact of this page that was listed
}

func parseCursor(text string) (c cursor, err error) {
	if text == "" {
		all := feed.FullRange()
		return cursor{{Min: all.Min, Max: all.Max}}, nil
	}
	raw, err := base64.RawURLEncoding.DecodeString(text)
	if err == nil {
		err = json.Unmarshal(raw, &c)
	}
	if err != nil {
		return nil, errBadCursor
	}
	return c, nil
}

const continuationHeader = "X-Continuation-Token"

var errBadCursor = Faults{{Parameter: continuationHeader, Detail: "must be one that a page of this list came with"}}

func (c cursor) String() string {
	text, _ := json.Marshal(c) // strings and numbers cannot fail
	return base64.RawURLEncoding.EncodeToString(text)
}

// readItems is how many changes are read at once.
const readItems = 100

// contacts yields those that are not deleted. The cursor is before a contact while it is yielded, and after it when the
// next one is asked for.
func (c *cursor) contacts(ctx context.Context, from feed.Source) iter.Seq2[*outbox.Doc[*Contact], error] {
	return func(yield func(*outbox.Doc[*Contact], error) bool) {
		for len(*c) > 0 {
			page, err := c.read(ctx, from)
			if err != nil {
				yield(nil, err)
				return
			}
			at := &(*c)[0]
			for i := range page.Changes {
				change := &page.Changes[i]
				if change.LSN <= at.LSN {
					continue
				}
				d, err := contactOf(change)
				if (d != nil || err != nil) && !yield(d, err) {
					return
				}
				at.LSN = change.LSN
			}
			at.Token, at.LSN = page.Next.Token, 0
			if len(page.Changes) == 0 {
				*c = (*c)[1:]
			}
		}
	}
}

// read reads the next page of the first stretch, which is cut where a partition ends.
func (c *cursor) read(ctx context.Context, from feed.Source) (feed.Page, error) {
	for {
		at := (*c)[0]
		position := feed.Position{Start: feed.FromBeginning()}
		if at.Token != "" {
			position = feed.At(at.Token)
		}
		page, err := from.Read(ctx, feed.Range{Min: at.Min, Max: at.Max}, position, feed.ReadOptions{MaxItems: readItems})
		switch {
		case errors.Is(err, feed.ErrBadRequest):
			return page, errBadCursor
		case !errors.Is(err, feed.ErrGone):
			return page, err
		}
		if err := c.cut(ctx, from); err != nil {
			return page, err
		}
	}
}

// cut divides the first stretch after the partition in which it begins. Both parts were read as far.
func (c *cursor) cut(ctx context.Context, from feed.Source) error {
	partitions, err := from.Partitions(ctx)
	if err != nil {
		return err
	}
	first := (*c)[0]
	for _, p := range partitions {
		if p.Range.Holds(first.Min) && p.Range.Max < first.Max {
			rest := first
			first.Max, rest.Min = p.Range.Max, p.Range.Max
			*c = append(cursor{first, rest}, (*c)[1:]...)
			return nil
		}
	}
	return feed.ErrGone // the store does not know its own partitions yet
}

// contactOf reads a contact from the feed; it is nil for another document, and for a contact that is deleted.
func contactOf(c *feed.Change) (*outbox.Doc[*Contact], error) {
	var document struct{ Type string }
	if json.Unmarshal(c.Body, &document) != nil || document.Type != contactType {
		return nil, nil
	}
	d, err := outbox.Decode[*Contact](c.Body)
	if err != nil || d.Data == nil || d.Data.Deleted {
		return nil, err
	}
	return d, nil
}
