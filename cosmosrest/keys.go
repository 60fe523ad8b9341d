package cosmosrest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"

	"github.com/millrace/changefeed/cosmosrest/internal/auth"
)

// The options about who may do what, and their translation for package auth.

// Keys are the master keys of the account, in base64. There are two of each kind so that
// either can be changed while clients still use the other.
type Keys struct {
	Primary, Secondary                 string // may do everything
	PrimaryReadOnly, SecondaryReadOnly string // may only read
}

// EmulatorKey is the well-known key of the service's emulator. It protects nothing.
const EmulatorKey = "C2y6yDjf5/R+ob0N8A7Cgv30VRDJIWEHLM+4QDU5DE2nQ9nDuVTqobD4b8mGGyPMbIZnqyMsEcaGQy67XIw/Jw=="

// list is the keys, or the emulator's if there is none.
func (k Keys) list() []auth.Key {
	if k == (Keys{}) {
		k.Primary = EmulatorKey
	}
	return []auth.Key{
		{Name: "primary key", Text: k.Primary, Write: true},
		{Name: "secondary key", Text: k.Secondary, Write: true},
		{Name: "primary read-only key", Text: k.PrimaryReadOnly},
		{Name: "secondary read-only key", Text: k.SecondaryReadOnly},
	}
}

// Tokens are the options for Entra tokens: whose are accepted, and what their principals
// may do.
type Tokens struct {
	// Issuer is the claim iss that a token must have, as
	// https://login.microsoftonline.com/TENANT/v2.0.
	Issuer string

	// Audiences are the claims aud of which a token must have any. SDKs ask for tokens
	// for https://cosmos.azure.com or for the address of the account.
	Audiences []string

	// JWKS is the file or the https address of the issuer's public keys, a JSON Web
	// Key Set. It is read again, once in five minutes at most, when a token was signed
	// with a key that is not in it.
	JWKS string

	// Roles list the rights of principals. A principal without roles may do nothing.
	Roles Roles

	// Insecure also accepts the emulator's tokens. They are not signed, but have a
	// read-write key in the place of the signature, and they may do everything. With
	// the well-known key anybody can make such a token. The rest may then be empty.
	Insecure bool
}

// Roles are what Entra principals may do, by their ids: the claim oid of their tokens
// or, without that, appid or sub.
type Roles map[string][]Grant

// Grant is what a principal may do in one container, in one database, or everywhere.
type Grant struct {
	// Database and Container are ids; empty or "*" is all.
	Database  string `json:"database"`
	Container string `json:"container"`

	// Actions are data actions by the service's names, such as
	// "Microsoft.DocumentDB/databaseAccounts/readMetadata" and
	// "Microsoft.DocumentDB/databaseAccounts/sqlDatabases/containers/items/*", or its
	// roles "Cosmos DB Built-in Data Reader" and "Cosmos DB Built-in Data Contributor".
	Actions []string `json:"actions"`
}

// ParseRoles reads roles from JSON: an object of lists of grants.
func ParseRoles(text []byte) (Roles, error) {
	var roles Roles
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.DisallowUnknownFields()
	err := dec.Decode(&roles)
	if err == nil && len(roles) == 0 {
		err = errors.New("there are none")
	}
	if err == nil && dec.More() {
		err = errors.New("there is more after them")
	}
	if err != nil {
		return nil, fmt.Errorf(`read roles: line %d: %w: want {"PRINCIPAL": [{"database": "d", "container": "c", "actions": [...]}]}`, failedLine(text, dec, err), err)
	}
	return roles, auth.CheckRoles(roles.grants())
}

// failedLine is the line where a decoder stopped, because roles are a file that people
// write.
func failedLine(text []byte, dec *json.Decoder, err error) int {
	at := dec.InputOffset()
	if e, ok := errors.AsType[*json.SyntaxError](err); ok {
		at = e.Offset
	} else if e, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		at = e.Offset
	}
	return 1 + bytes.Count(text[:min(at, int64(len(text)))], []byte{'\n'})
}

// grants are the roles in the form of package auth.
func (r Roles) grants() map[string][]auth.Grant {
	all := make(map[string][]auth.Grant, len(r))
	for principal, grants := range r {
		all[principal] = nil // a principal without grants is checked too
		for _, g := range grants {
			all[principal] = append(all[principal], auth.Grant(g))
		}
	}
	return all
}

// authority checks credentials by the options.
func (o *Options) authority(log *slog.Logger) (*auth.Authority, error) {
	if o.Tokens == nil {
		return auth.New(o.Keys.list(), nil, log)
	}
	t := o.Tokens
	return auth.New(o.Keys.list(), &auth.Tokens{
		Issuer: t.Issuer, Audiences: t.Audiences, JWKS: t.JWKS, Roles: t.Roles.grants(), Insecure: t.Insecure,
	}, log)
}
