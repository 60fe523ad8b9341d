package main

import (
	"errors"
	"strings"
	"time"

	"github.com/millrace/changefeed/outbox"
)

// Contact is the aggregate: its methods keep its rules, and record an event for each action.
type Contact struct {
	outbox.Recorder
	ID          string     `json:"id"`
	Name        Name       `json:"name"`
	Description string     `json:"description"`
	Email       *string    `json:"email,omitempty"` // nil is none
	Company     Company    `json:"company"`
	CreatedAt   time.Time  `json:"createdAt"`
	ModifiedAt  *time.Time `json:"modifiedAt,omitempty"`
	DeletedAt   *time.Time `json:"deletedAt,omitempty"`
	Deleted     bool       `json:"deleted"` // the document stays, so that its id is not used again
}

// Name is that of a person.
type Name struct {
	FirstName string `json:"firstName"`
	LastName  string `json:"lastName"`
}

// Company is where a contact works.
type Company struct {
	CompanyName string `json:"companyName"`
	Street      string `json:"street"`
	HouseNumber string `json:"houseNumber"`
	PostalCode  string `json:"postalCode"`
	City        string `json:"city"`
	Country     string `json:"country"`
}

var (
	errBlankName    = errors.New("first name and last name must not be blank")
	errBlankCompany = errors.New("company name must not be blank")
)

// NewContact makes a contact, whose created event carries the state that it is stored with.
func NewContact(id string, n Name, description string, email *string, company Company) (*Contact, error) {
	c := &Contact{ID: id, CreatedAt: time.Now().UTC()}
	c.RecordCreated(ContactCreated{Contact: c, ContactID: id})
	if err := errors.Join(c.SetName(n), c.SetCompany(company)); err != nil {
		return nil, err
	}
	c.SetDescription(description)
	c.SetEmail(email)
	return c, nil
}

// SetName renames the contact.
func (c *Contact) SetName(n Name) error {
	if isBlank(n.FirstName) || isBlank(n.LastName) {
		return errBlankName
	}
	c.Name = n
	c.modified(ContactNameUpdated{ContactID: c.ID, Name: n})
	return nil
}

// SetDescription describes the contact.
func (c *Contact) SetDescription(text string) {
	c.Description = text
	c.modified(ContactDescriptionUpdated{ContactID: c.ID, Description: text})
}

// SetEmail gives the contact an address, or with nil none.
func (c *Contact) SetEmail(email *string) {
	c.Email = email
	c.modified(ContactEmailUpdated{ContactID: c.ID, Email: email})
}

// SetCompany says where the contact works.
func (c *Contact) SetCompany(company Company) error {
	if isBlank(company.CompanyName) {
		return errBlankCompany
	}
	c.Company = company
	c.modified(ContactCompanyUpdated{ContactID: c.ID, Company: company})
	return nil
}

// Delete hides the contact for good. A contact that was never stored, or is deleted, cannot be.
func (c *Contact) Delete() {
	if c.IsNew() || c.Deleted {
		return
	}
	c.Deleted, c.DeletedAt = true, now()
	c.Record(ContactDeleted{ContactID: c.ID})
}

// modified records an action. A new contact has only its created event.
func (c *Contact) modified(e outbox.Event) {
	if !c.IsNew() {
		c.ModifiedAt = now()
	}
	c.Record(e)
}

func now() *time.Time { return new(time.Now().UTC()) }

func isBlank(text string) bool { return strings.TrimSpace(text) == "" }

// The events. Each has, besides, the members id, action and createdAt, which package outbox adds.
type (
	// ContactCreated carries the whole contact.
	ContactCreated struct {
		Contact   *Contact `json:"contact"`
		ContactID string   `json:"contactId"`
	}
	// ContactNameUpdated carries the new name.
	ContactNameUpdated struct {
		Name      Name   `json:"name"`
		ContactID string `json:"contactId"`
	}
	// ContactDescriptionUpdated carries the new description.
	ContactDescriptionUpdated struct {
		Description string `json:"description"`
		ContactID   string `json:"contactId"`
	}
	// ContactEmailUpdated carries the new address, or none.
	ContactEmailUpdated struct {
		Email     *string `json:"email,omitempty"`
		ContactID string  `json:"contactId"`
	}
	// ContactCompanyUpdated carries the new company.
	ContactCompanyUpdated struct {
		Company   Company `json:"company"`
		ContactID string  `json:"contactId"`
	}
	// ContactDeleted is the last event of a contact.
	ContactDeleted struct {
		ContactID string `json:"contactId"`
	}
)

// EventName implements [outbox.Event].
func (ContactCreated) EventName() string { return "ContactCreatedEvent" }

// EventName implements [outbox.Event].
func (ContactNameUpdated) EventName() string { return "ContactNameUpdatedEvent" }

// EventName implements [outbox.Event].
func (ContactDescriptionUpdated) EventName() string { return "ContactDescriptionUpdatedEvent" }

// EventName implements [outbox.Event].
func (ContactEmailUpdated) EventName() string { return "ContactEmailUpdatedEvent" }

// EventName implements [outbox.Event].
func (ContactCompanyUpdated) EventName() string { return "ContactCompanyUpdatedEvent" }

// EventName implements [outbox.Event].
func (ContactDeleted) EventName() string { return "ContactDeletedEvent" }
