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

// View is a contact as clients see it.
type View struct {
	ID          string  `json:"id"`
	Description string  `json:"description"`
	Email       *string `json:"email"`
	Name        Name    `json:"name"`
	Company     Company `json:"company"`
}

// ErrNotModified means that the client has this version already.
var ErrNotModified = errors.New("not modified")

// Get reads a contact and its ETag. If known contains the ETag, you get [ErrNotModified].
func (s *Contacts) Get(ctx context.Context, id string, known Tags) (v View, etag string, err error) {
	d, err := s.loadContact(ctx, id)
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

// List reads up to size contacts after a continuation. To begin, pass an empty continuation. List also returns the
// next continuation, which is empty at the end. A contact that exists the whole time is in the list. A contact that
// changes meanwhile may come again.
func (s *Contacts) List(ctx context.Context, size int, continuation string) (p Page, next string, err error) {
	at, err := parseCursor(continuation)
	if err != nil {
		return p, "", err
	}
	p.Items = []Listed{}
	for d, err := range at.yieldContacts(ctx, s.store) {
		if err != nil {
			return p, "", err
		}
		if len(p.Items) == size {
			p.HasMore = true
			return p, at.String(), nil
		}
		c := d.Data
		p.Items = append(p.Items, Listed{
			c.ID, c.Email, c.Name.FirstName + " " + c.Name.LastName,
			c.Company.CompanyName,
		})
	}
	return p, "", nil
}

// A cursor is a place in the list of contacts: the unread rest of the key space. The list comes from the change feed,
// which contains the latest version of each document once. So the list needs no query engine and works on every
// store.
type cursor []stretch

// stretch is a part of the key space, with its progress.
type stretch struct {
	Min   string `json:"min"`
	Max   string `json:"max"`
	Token string `json:"token,omitempty"` // the present page was read after this token; empty means the beginning
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
	text, _ := json.Marshal(c) // cannot fail: strings and numbers
	return base64.RawURLEncoding.EncodeToString(text)
}

// readItems is how many changes are read at a time.
const readItems = 100

// yieldContacts yields the contacts that are not deleted. While a contact is yielded, the cursor is before this
// contact. When the next contact is requested, the cursor moves behind this contact.
func (c *cursor) yieldContacts(ctx context.Context, from feed.Source) iter.Seq2[*outbox.Doc[*Contact], error] {
	return func(yield func(*outbox.Doc[*Contact], error) bool) {
		for len(*c) > 0 {
			page, err := c.readPage(ctx, from)
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

// readPage reads the next page of the first stretch. If a partition ends within the stretch, the stretch is cut there.
func (c *cursor) readPage(ctx context.Context, from feed.Source) (feed.Page, error) {
	for {
		at := (*c)[0]
		position := feed.Position{Start: feed.FromBeginning()}
		if at.Token != "" {
			position = feed.At(at.Token)
		}
		page, err := from.Read(ctx, feed.Range{Min: at.Min, Max: at.Max}, position,
			feed.ReadOptions{MaxItems: readItems})
		switch {
		case errors.Is(err, feed.ErrBadRequest):
			return page, errBadCursor
		case !errors.Is(err, feed.ErrGone):
			return page, err
		}
		if err := c.cutStretch(ctx, from); err != nil {
			return page, err
		}
	}
}

// cutStretch cuts the first stretch at the end of the partition of its beginning. Both parts have the same progress.
func (c *cursor) cutStretch(ctx context.Context, from feed.Source) error {
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
	return feed.ErrGone // the store does not know its new partitions yet
}

// contactOf returns the contact in a change. contactOf returns nil if the document is not a contact, or the contact
// is deleted.
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
