package main

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// A Fault describes the fault of a property of a request.
type Fault struct {
	Detail    string `json:"detail"`
	Pointer   string `json:"pointer,omitempty"`   // to a member of the body, such as #/email
	Parameter string `json:"parameter,omitempty"` // name of a query parameter or header
}

// Faults are the faults of a request, at most a single fault per property. If there are any, they are an error.
type Faults []Fault

func (f Faults) Error() string {
	texts := make([]string, len(f))
	for i, one := range f {
		texts[i] = one.Pointer + one.Parameter + " " + one.Detail
	}
	return strings.Join(texts, "; ")
}

// The longest allowed texts, in characters.
const (
	mostName        = 100
	mostDescription = 500
	mostCompany     = 250 // of a company's name, street, city and country
	mostHouseNumber = 10
	mostPostalCode  = 25
	mostTag         = 50
	mostKey         = 255 // of an idempotency key
)

func (f *Faults) add(member, detail string) {
	*f = append(*f, Fault{Detail: detail, Pointer: "#/" + member})
}

// checkRequired adds a fault if a text is blank or too long.
func (f *Faults) checkRequired(member, text string, most int) {
	if isBlank(text) {
		f.add(member, "must not be blank")
		return
	}
	f.checkLength(member, text, most)
}

// checkLength adds a fault if a text is longer than most characters.
func (f *Faults) checkLength(member, text string, most int) {
	if utf8.RuneCountInString(text) > most {
		f.add(member, fmt.Sprintf("must have at most %d characters", most))
	}
}

// checkEmail adds a fault if email is set and does not look like an email address.
func (f *Faults) checkEmail(member string, email *string) {
	if email == nil {
		return
	}
	user, host, _ := strings.Cut(*email, "@")
	if user == "" || host == "" || strings.Contains(host, "@") || strings.ContainsFunc(*email, unicode.IsSpace) {
		f.add(member, "must be an email address, or null")
	}
}

func (c CreateContact) check(f *Faults) {
	UpdateName{c.FirstName, c.LastName}.check(f)
	UpdateEmail{c.Email}.check(f)
	UpdateDescription{c.Description}.check(f)
	f.checkRequired("companyName", c.CompanyName, mostCompany)
}

func (u UpdateName) check(f *Faults) {
	f.checkRequired("firstName", u.FirstName, mostName)
	f.checkRequired("lastName", u.LastName, mostName)
}

func (u UpdateDescription) check(f *Faults) {
	f.checkLength("description", u.Description, mostDescription)
}

func (u UpdateEmail) check(f *Faults) { f.checkEmail("email", u.Email) }

func (u UpdateCompany) check(f *Faults) {
	f.checkRequired("companyName", u.CompanyName, mostCompany)
	f.checkLength("street", u.Street, mostCompany)
	f.checkLength("houseNumber", u.HouseNumber, mostHouseNumber)
	f.checkLength("postalCode", u.PostalCode, mostPostalCode)
	f.checkLength("city", u.City, mostCompany)
	f.checkLength("country", u.Country, mostCompany)
}

func (DeleteContact) check(*Faults) {}
