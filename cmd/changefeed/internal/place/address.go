// Package place opens containers by their addresses: in the directory of a store that no other process has open, or in
// an account of Azure Cosmos DB, or on changefeed serve, which is such an account too. The errors say which part of an
// address is wrong, and which alternatives exist, because they are for the people who typed the address.
package place

import (
	"cmp"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/internal/address"
)

// An Address says where a container is: in the directory of a store, or in an account.
type Address struct {
	Dir       string // of the store; empty for an account
	endpoint  string // of the account; empty means that of the flags or the environment
	Database  string
	Container string
	Field     string // the flag of the address; empty for --db and --container
	Given     string // the text as written
	login     *Login // the account, in place of that of endpoint; nil if there is none
	Guessed   bool   // Container is a default of a command about leases, and not what the user wrote
}

// AddressForms are the forms of an address, for the help and for errors.
const AddressForms = address.Forms

// Parse reads an address in one of [AddressForms]. The error names the field of the address.
func Parse(field, text string) (Address, error) {
	at, ok := address.Parse(text)
	if !ok {
		return Address{}, fmt.Errorf("%s is %q: want %s", field, text, AddressForms)
	}
	return Address{
		Dir: at.Dir, endpoint: at.Endpoint, Database: at.Database, Container: at.Container, Field: field, Given: text,
	}, nil
}

// IsAddress reports whether a text is an address, right or wrong, and not the name of a file.
func IsAddress(text string) bool {
	scheme, _, ok := strings.Cut(text, ":")
	return ok && slices.Contains([]string{"docstore", "cosmos", "http", "https"}, scheme)
}

// ParseName reads container or database/container.
func ParseName(text string) (database, container string, ok bool) {
	return address.ParseName(text)
}

// Name returns the name by which a store finds the container.
func (a Address) Name() string {
	if a.Database == docstore.DefaultDatabase {
		return a.Container
	}
	return a.Database + "/" + a.Container
}

// Beside returns the address of another container of the same database.
func (a Address) Beside(container string) Address {
	a.Container = container
	a.Given, a.Guessed = container+" beside "+a.Given, false
	return a
}

// String returns the address in the form for a command.
func (a Address) String() string {
	switch {
	case a.Dir != "":
		return "docstore:" + a.Dir + "#" + a.Name()
	case a.endpoint == "":
		return "cosmos:" + a.Database + "/" + a.Container
	}
	return a.endpoint + "/" + url.PathEscape(a.Database) + "/" + url.PathEscape(a.Container)
}

// Same returns a text that is the same for all addresses of a container, as far as the addresses and the flags tell:
// for two paths of a directory, or for an account in a flag and in a URL. The text is not for people.
func (f Settings) Same(a Address) string {
	if a.Dir != "" {
		return directory(a.Dir) + "#" + a.Name()
	}
	account := hostPort(cmp.Or(a.endpoint, f.Endpoint))
	if account == "" {
		account = fmt.Sprintf("%q %q", f.Connection, f.Choice.Name)
	}
	return fmt.Sprintf("%s/%q/%q", account, a.Database, a.Container)
}

// quoteStore is Quote for an error about the store rather than the container.
func (a Address) quoteStore() string {
	if a.Field == "" {
		return "--db is " + a.Dir
	}
	return a.Field + " is " + a.Given
}

// Quote returns the beginning of an error about the address: the field and the text of the address.
func (a Address) Quote() string {
	field := cmp.Or(a.Field, "--container")
	if a.Guessed {
		field = "the lease container"
	}
	return field + " is " + cmp.Or(a.Given, a.Name())
}
