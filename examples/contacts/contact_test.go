package main

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// loaded is a contact as it is after it was read.
func loaded(t *testing.T) *Contact {
	t.Helper()
	made, err := NewContact("c1", Name{"Ada", "Lovelace"}, "", nil, Company{CompanyName: "Engines"})
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(made)
	if err != nil {
		t.Fatal(err)
	}
	c := &Contact{}
	if err := json.Unmarshal(text, c); err != nil {
		t.Fatal(err)
	}
	return c
}

func names(c *Contact) (all []string) {
	for _, e := range c.Recorded() {
		all = append(all, e.EventName())
	}
	return all
}

func TestANewContactHasItsCreatedEventOnly(t *testing.T) {
	c, err := NewContact("c1", Name{"Ada", "Lovelace"}, "d", new("a@b"), Company{CompanyName: "Engines"})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(c.SetName(Name{"A", "L"}), c.SetCompany(Company{CompanyName: "C"})); err != nil {
		t.Fatal(err)
	}
	c.SetDescription("e")
	c.SetEmail(nil)
	c.Delete()
	if diff := cmp.Diff([]string{"ContactCreatedEvent"}, names(c)); diff != "" {
		t.Error(diff)
	}
	text, err := json.Marshal(c.Recorded()[0])
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(text), `"firstName":"A"`) || c.Deleted || c.ModifiedAt != nil {
		t.Errorf("the created event is %s, want the final state, which is neither modified nor deleted", text)
	}
}

func TestALoadedContactHasNoEvents(t *testing.T) {
	if c := loaded(t); len(names(c)) > 0 || c.IsNew() || c.Name.FirstName != "Ada" {
		t.Errorf("%+v has %v", c, names(c))
	}
}

func TestEachActionHasItsEvent(t *testing.T) {
	for _, test := range []struct {
		event, payload string
		do             func(c *Contact) error
	}{
		{
			"ContactNameUpdatedEvent", `{"name":{"firstName":"A","lastName":"L"},"contactId":"c1"}`,
			UpdateName{"A", "L"}.apply,
		},
		{"ContactDescriptionUpdatedEvent", `{"description":"d","contactId":"c1"}`, UpdateDescription{"d"}.apply},
		{"ContactEmailUpdatedEvent", `{"email":"a@b","contactId":"c1"}`, UpdateEmail{new("a@b")}.apply},
		{"ContactEmailUpdatedEvent", `{"contactId":"c1"}`, UpdateEmail{}.apply},
		{
			"ContactCompanyUpdatedEvent",
			`{"company":{"companyName":"C","street":"","houseNumber":"","postalCode":"","city":"T","country":""},"contactId":"c1"}`, UpdateCompany{CompanyName: "C", City: "T"}.apply,
		},
		{"ContactDeletedEvent", `{"contactId":"c1"}`, DeleteContact{}.apply},
	} {
		c := loaded(t)
		if err := test.do(c); err != nil {
			t.Fatal(err)
		}
		payload, err := json.Marshal(c.Recorded()[0])
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]string{test.event, test.payload}, append(names(c), string(payload))); diff != "" {
			t.Error(diff)
		}
		deleted := test.event == "ContactDeletedEvent"
		if (c.ModifiedAt == nil) != deleted || (c.DeletedAt == nil) == deleted || c.Deleted != deleted {
			t.Errorf("%s: modified at %v, deleted at %v", test.event, c.ModifiedAt, c.DeletedAt)
		}
		c.Delete()
		at := c.DeletedAt
		c.Delete()
		if c.DeletedAt != at {
			t.Error("a second delete changes the contact")
		}
	}
}

func TestWhatIsRefusedRecordsNothing(t *testing.T) {
	c := loaded(t)
	before := *c
	for _, test := range []struct{ got, want error }{
		{c.SetName(Name{" ", "L"}), errBlankName},
		{c.SetName(Name{"A", ""}), errBlankName},
		{c.SetCompany(Company{CompanyName: "\t"}), errBlankCompany},
	} {
		if !errors.Is(test.got, test.want) {
			t.Errorf("got %v, want %v", test.got, test.want)
		}
	}
	if len(names(c)) > 0 || c.Name != before.Name || c.Company != before.Company {
		t.Errorf("%+v has %v", c, names(c))
	}
	if c, err := NewContact("c2", Name{}, "", nil, Company{}); !errors.Is(err, errBlankName) ||
		!errors.Is(err, errBlankCompany) || c != nil {
		t.Errorf("got %v, %v", c, err)
	}
}

func TestEventsOfAContactAreForgottenReplacedAndInOrder(t *testing.T) {
	c := loaded(t)
	c.SetDescription("1")
	c.SetEmail(nil)
	c.SetDescription("2")
	if diff := cmp.Diff([]string{"ContactDescriptionUpdatedEvent", "ContactEmailUpdatedEvent"}, names(c)); diff != "" {
		t.Error(diff)
	}
	if e := c.Recorded()[0].(ContactDescriptionUpdated); e.Description != "2" {
		t.Errorf("the event that is left is %+v", e)
	}
	c.Forget("ContactDescriptionUpdatedEvent")
	if diff := cmp.Diff([]string{"ContactEmailUpdatedEvent"}, names(c)); diff != "" {
		t.Error(diff)
	}
	c.ForgetAll()
	if len(names(c)) > 0 {
		t.Errorf("%v are left", names(c))
	}
}

func TestWhatIsValid(t *testing.T) {
	long := func(n int) string { return strings.Repeat("é", n) }
	person := func(first, last, company string) CreateContact {
		return CreateContact{FirstName: first, LastName: last, CompanyName: company}
	}
	mail := func(text string) CreateContact {
		return CreateContact{FirstName: "A", LastName: "L", CompanyName: "C", Email: &text}
	}
	for _, test := range []struct {
		cmd  interface{ check(f *Faults) }
		want string
	}{
		{person("A", "L", "C"), ""},
		{person(long(100), long(100), long(250)), ""},
		{
			person(long(101), " ", long(251)),
			"#/firstName must have at most 100 characters; #/lastName must not be blank; #/companyName must have at " +
				"most 250 characters",
		},
		{
			CreateContact{FirstName: "A", LastName: "L", CompanyName: "C", Description: long(501)},
			"#/description must have at most 500 characters",
		},
		{mail("a@b"), ""},
		{mail(""), "#/email must be an email address, or null"},
		{mail("@b"), "#/email must be an email address, or null"},
		{mail("a@"), "#/email must be an email address, or null"},
		{mail("a@b@c"), "#/email must be an email address, or null"},
		{mail("a b@c"), "#/email must be an email address, or null"},
		{UpdateName{"", "L"}, "#/firstName must not be blank"},
		{UpdateDescription{long(500)}, ""},
		{UpdateDescription{long(501)}, "#/description must have at most 500 characters"},
		{UpdateEmail{}, ""},
		{UpdateEmail{new("x")}, "#/email must be an email address, or null"},
		{UpdateCompany{
			CompanyName: "C", Street: long(250), HouseNumber: long(10), PostalCode: long(25),
			City: long(250), Country: long(250),
		}, ""},
		{UpdateCompany{
			Street: long(251), HouseNumber: long(11), PostalCode: long(26), City: long(251),
			Country: long(251),
		}, "#/companyName must not be blank; #/street must have at most 250 characters; " +
			"#/houseNumber must have at most 10 characters; #/postalCode must have at most 25 characters; #/city " +
			"must have at most 250 characters; #/country must have at most 250 characters"},
		{DeleteContact{}, ""},
	} {
		var f Faults
		test.cmd.check(&f)
		if f.Error() != test.want {
			t.Errorf("%+.60v: got %q, want %q", test.cmd, f, test.want)
		}
	}
}
