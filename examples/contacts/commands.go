package main

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/outbox"
)

// Contacts are the contacts of a container with the partition key /partitionKey. Commands change a contact; queries
// read contacts.
type Contacts struct {
	store store
	units outbox.Options
}

// store is a container of docstore or of cosmos.
type store interface {
	feed.Committer
	feed.Source
}

// A Command changes a contact.
type Command interface {
	// check adds the command's faults to f.
	check(f *Faults)
	// apply changes a contact that exists and is not deleted.
	apply(c *Contact) error
}

// The commands, in the form in which clients send them.
type (
	// UpdateName renames a contact.
	UpdateName Name
	// UpdateDescription describes a contact.
	UpdateDescription struct {
		Description string `json:"description"`
	}
	// UpdateEmail sets or removes the email address of a contact.
	UpdateEmail struct {
		Email *string `json:"email"`
	}
	// UpdateCompany sets the company of a contact.
	UpdateCompany Company
	// DeleteContact deletes a contact by a mark.
	DeleteContact struct{}
	// CreateContact creates a contact. CreateContact is no Command, because there is no contact yet to change.
	CreateContact struct {
		FirstName   string  `json:"firstName"`
		LastName    string  `json:"lastName"`
		Email       *string `json:"email"`
		Description string  `json:"description"`
		CompanyName string  `json:"companyName"`
	}
)

func (u UpdateName) apply(c *Contact) error { return c.SetName(Name(u)) }

func (u UpdateDescription) apply(c *Contact) error {
	c.SetDescription(u.Description)
	return nil
}

func (u UpdateEmail) apply(c *Contact) error {
	c.SetEmail(u.Email)
	return nil
}

func (u UpdateCompany) apply(c *Contact) error { return c.SetCompany(Company(u)) }

func (DeleteContact) apply(c *Contact) error {
	c.Delete()
	return nil
}

// Do applies a command to a contact, and returns its new ETag. If match contains ETags, the contact must have any of
// them. If match is empty, the contact must not change while the command is being applied. Otherwise you get
// [feed.ErrPrecondition].
func (s *Contacts) Do(ctx context.Context, id string, cmd Command, match Tags) (etag string, err error) {
	var wrong Faults
	if cmd.check(&wrong); len(wrong) > 0 {
		return "", wrong
	}
	d, err := s.loadContact(ctx, id)
	if err != nil {
		return "", err
	}
	if match != nil && !match.Have(d.ETag) {
		return "", feed.ErrPrecondition
	}
	if err := cmd.apply(d.Data); err != nil {
		return "", err
	}
	u := outbox.NewUnit(s.store, s.units)
	u.Replace(d) // with the ETag as a condition
	if err := commit(ctx, u); err != nil {
		return "", err
	}
	return d.ETag, nil
}

const contactType = "contact"

// loadContact reads a contact. A deleted contact is not found.
func (s *Contacts) loadContact(ctx context.Context, id string) (*outbox.Doc[*Contact], error) {
	d, err := outbox.Load[*Contact](ctx, s.store, id, contactType, id)
	if err == nil && (d.Data == nil || d.Data.Deleted) {
		err = feed.ErrNotFound
	}
	return d, err
}

// request is stored next to a contact. This document records the request that created the contact, so a repeated
// request is recognized.
type request struct {
	Digest string `json:"digest"`
}

const requestType = "request"

// ErrKeyReused means that the idempotency key belongs to another request.
var ErrKeyReused = errors.New("this Idempotency-Key was used for another request")

// Create creates a contact. If you set an idempotency key, the contact is created once, and a repeated request gets
// the answer of the first: the same id, and the same ETag unless the contact has changed since. This also holds if
// the contact has been deleted since, because a client that never got the answer must not create again a contact that
// another client has deleted.
func (s *Contacts) Create(ctx context.Context, cmd CreateContact, key string) (id, etag string, err error) {
	var wrong Faults
	if cmd.check(&wrong); len(wrong) > 0 {
		return "", "", wrong
	}
	id = newID(key)
	c, err := NewContact(id, Name{cmd.FirstName, cmd.LastName}, cmd.Description, cmd.Email,
		Company{CompanyName: cmd.CompanyName})
	if err != nil {
		return "", "", err
	}
	made := &outbox.Doc[*Contact]{ID: id, PartitionKey: id, Type: contactType, Data: c}
	u := outbox.NewUnit(s.store, s.units)
	u.Create(made)
	if key != "" {
		u.Create(&outbox.Doc[request]{ID: requestType, PartitionKey: id, Type: requestType, Data: request{digest(cmd)}})
	}
	err = commit(ctx, u)
	if key != "" && errors.Is(err, feed.ErrConflict) {
		return s.answerRepeated(ctx, id, cmd)
	}
	return id, made.ETag, err
}

// answerRepeated answers a request for a contact that exists already.
func (s *Contacts) answerRepeated(ctx context.Context, id string, cmd CreateContact) (_, etag string, err error) {
	first, err := outbox.Load[request](ctx, s.store, id, requestType, requestType)
	if err != nil {
		return "", "", err
	}
	if first.Data.Digest != digest(cmd) {
		return "", "", ErrKeyReused
	}
	d, err := outbox.Load[*Contact](ctx, s.store, id, contactType, id)
	if err == nil && d.Seq == 1 { // only the created event has been recorded
		etag = d.ETag
	}
	return id, etag, err
}

// digest returns a hash of a command.
func digest(cmd CreateContact) string {
	text, _ := json.Marshal(cmd) // cannot fail: the members are strings
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

// newID returns an id: the UUID of an idempotency key or, without a key, a random UUID.
func newID(key string) string {
	b := make([]byte, 16)
	version := byte(0x40)
	if key == "" {
		_, _ = rand.Read(b) // never fails
	} else {
		sum := sha256.Sum256([]byte("contact " + key))
		copy(b, sum[:])
		version = 0x80 // a UUID of our own kind
	}
	b[6], b[8] = b[6]&0x0f|version, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

// settleTime is how long a request waits for a store that has not answered.
const settleTime = 5 * time.Second

// commit stores a unit of work. If an answer of the store is lost, commit finds out whether the unit was stored. If
// that fails, the error is an [outbox.ErrUnknown], and the client is told so.
func commit(ctx context.Context, u *outbox.Unit) error {
	err := u.Commit(ctx)
	if !errors.Is(err, outbox.ErrUnknown) {
		return err
	}
	settling, cancel := context.WithTimeout(ctx, settleTime)
	defer cancel()
	return u.Settle(settling)
}
