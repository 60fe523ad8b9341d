package main

import (
	"errors"
	"strings"
	"time"

	"github.com/millrace/changefeed/outbox"
)

// Contact is the aggregate. Its methods enforce its rules, and record an event for each action.
type Contact struct {
	outbox.Recorder
	ID          string     `json:"id"`
	Name        Name       `json:"name"`
	Description string     `json:"description"`
	Email       *string    `json:"email,omitempty"` // nil means none
	Company     Company    `json:"company"`
	CreatedAt   time.Time  `json:"createdAt"`
	ModifiedAt  *time.Time `json:"modifiedAt,omitempty"`
	DeletedAt   *time.Time `json:"deletedAt,omitempty"`
	Deleted     bool       `json:"deleted"` // the document remains, so its id is not used again
}

// Name is the name of a person.
type Name struct {
	FirstName string `json:"firstName"`
	LastName  string `json:"lastName"`
}

// Company is the company in which a contact works.
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

// NewContact creates a contact. Its created event contains the state that is stored.
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
	c.recordChange(ContactNameUpdated{ContactID: c.ID, Name: n})
	return nil
}

// SetDescription sets the contact's description.
func (c *Contact) SetDescription(text string) {
	c.Description = text
	c.recordChange(ContactDescriptionUpdated{ContactID: c.ID, Description: text})
}

// SetEmail sets the contact's email address; nil removes the address.
func (c *Contact) SetEmail(email *string) {
	c.Email = email
	c.recordChange(ContactEmailUpdated{ContactID: c.ID, Email: email})
}

// SetCompany sets the contact's company.
func (c *Contact) SetCompany(company Company) error {
	if isBlank(company.CompanyName) {
		return errBlankCompany
	}
	c.Company = company
	c.recordChange(ContactCompanyUpdated{ContactID: c.ID, Company: company})
	return nil
}

// Delete marks the contact as deleted, for good. Delete does nothing for a contact that was never stored, or is
// deleted already.
func (c *Contact) Delete() {
	if c.IsNew() || c.Deleted {
		return
	}
	c.Deleted, c.DeletedAt = true, now()
	c.Record(ContactDeleted{ContactID: c.ID})
}

// recordChange records an action. A new contact has only its created event.
func (c *Contact) recordChange(e outbox.Event) {
	if !c.IsNew() {
		c.ModifiedAt = now()
	}
	c.Record(e)
}

func now() *time.Time { return new(time.Now().UTC()) }

func isBlank(text string) bool { return strings.TrimSpace(text) == "" }

// The events. Package outbox adds the members id, action and createdAt to each.
type (
	// ContactCreated contains the whole contact.
	ContactCreated struct {
		Contact   *Contact `json:"contact"`
		ContactID string   `json:"contactId"`
	}
	// ContactNameUpdated contains the new name.
	ContactNameUpdated struct {
		Name      Name   `json:"name"`
		ContactID string `json:"contactId"`
	}
	// ContactDescriptionUpdated contains the new description.
	ContactDescriptionUpdated struct {
		Description string `json:"description"`
		ContactID   string `json:"contactId"`
	}
	// ContactEmailUpdated contains the new address, or none.
	ContactEmailUpdated struct {
		Email     *string `json:"email,omitempty"`
		ContactID string  `json:"contactId"`
	}
	// ContactCompanyUpdated contains the new company.
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
