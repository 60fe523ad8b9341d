package cosmosrest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"

	"github.com/millrace/changefeed/cosmosrest/internal/auth"
	"github.com/millrace/changefeed/internal/cosmosdb/service"
)

// The options for credentials and rights, and their conversion for package auth.

// Keys are the master keys of the account, in base64. There are two of each kind, so you can change the first while
// clients still use the second.
type Keys struct {
	Primary, Secondary                 string // read-write keys
	PrimaryReadOnly, SecondaryReadOnly string // read-only keys
}

// EmulatorKey is the well-known key of the service's emulator. This key protects nothing, because everyone knows this
// key.
const EmulatorKey = service.EmulatorKey

// list returns the keys, or the emulator's key if there are none.
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

// Tokens are the options for Entra tokens: which tokens are accepted, and which rights their principals have.
type Tokens struct {
	// Issuer is the claim iss that a token must have, such as https://login.microsoftonline.com/TENANT/v2.0.
	Issuer string

	// Audiences are the accepted values of the claim aud. SDKs request tokens for https://cosmos.azure.com or for the
	// address of the account.
	Audiences []string

	// JWKS is the file or the https address of the issuer's public keys, a JSON Web Key Set. If a token was signed
	// with an unknown key, the server reads the set again, at most once in five minutes.
	JWKS string

	// Roles list the rights of principals. A principal without roles has no rights.
	Roles Roles

	// Insecure also accepts the emulator's tokens. These are not signed: instead of a signature they contain a
	// read-write key, and they have all rights. If the key is the well-known key, everyone can make such a token. If
	// you set Insecure, the other fields may be empty.
	Insecure bool
}

// Roles are the rights of Entra principals, by id: the claim oid of their tokens or, if that is missing, appid or
// sub.
type Roles map[string][]Grant

// Grant contains the rights of a principal in a container, in a database, or everywhere.
type Grant struct {
	// Database and Container are ids; empty or "*" means all.
	Database  string `json:"database"`
	Container string `json:"container"`

	// Actions are data actions by the service's names, such as "Microsoft.DocumentDB/databaseAccounts/readMetadata"
	// and "Microsoft.DocumentDB/databaseAccounts/sqlDatabases/containers/items/*", or the service's roles "Cosmos DB
	// Built-in Data Reader" and "Cosmos DB Built-in Data Contributor".
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
		return nil,
			fmt.Errorf(`read roles: line %d: %w: want {"PRINCIPAL": [{"database": "d", "container": "c", "actions": [...]}]}`, failedLine(text, dec, err), err)
	}
	return roles, auth.CheckRoles(roles.grants())
}

// failedLine returns the line where a decoder stopped, because people write the file of roles by hand.
func failedLine(text []byte, dec *json.Decoder, err error) int {
	at := dec.InputOffset()
	if e, ok := errors.AsType[*json.SyntaxError](err); ok {
		at = e.Offset
	} else if e, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		at = e.Offset
	}
	return 1 + bytes.Count(text[:min(at, int64(len(text)))], []byte{'\n'})
}

// grants returns the roles in the form of package auth.
func (r Roles) grants() map[string][]auth.Grant {
	all := make(map[string][]auth.Grant, len(r))
	for principal, grants := range r {
		all[principal] = nil // so that a principal without grants is checked too
		for _, g := range grants {
			all[principal] = append(all[principal], auth.Grant(g))
		}
	}
	return all
}

// authority returns the checker of credentials for the options.
func (o *Options) authority(log *slog.Logger) (*auth.Authority, error) {
	if o.Tokens == nil {
		return auth.New(o.Keys.list(), nil, log)
	}
	t := o.Tokens
	return auth.New(o.Keys.list(), &auth.Tokens{
		Issuer: t.Issuer, Audiences: t.Audiences, JWKS: t.JWKS, Roles: t.Roles.grants(), Insecure: t.Insecure,
	}, log)
}
