package place

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"

	"github.com/millrace/changefeed/cosmos"
	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/cosmosdb/rest"
)

// A Login is an account with a credential of its own, in place of those that flags, the environment and contexts offer.
// Two logins may lead to the same account with different keys.
type Login struct {
	From     string // what describes the account, for errors
	Endpoint string // URL
	Key      string
	Identity azcore.TokenCredential // if there is no key
	Regions  []string               // preferred
	Agent    string                 // suffix of the name of the client
}

// Address returns the address of a container of the account; field names it in errors.
func (l *Login) Address(field, database, container string) Address {
	a := Address{
		login: l, endpoint: strings.TrimRight(l.Endpoint, "/"), Database: database, Container: container, Field: field,
	}
	a.Given = a.String()
	return a
}

// loginAccount opens the account of a login.
func (o *Opener) loginAccount(ctx context.Context, l *Login) (opened *Account, err error) {
	if found := o.logins[l]; found != nil {
		return found, nil
	}
	c := credentials{Endpoint: l.Endpoint, key: l.Key, from: l.From, keyFrom: "credential of " + l.From}
	opened = &Account{credentials: c}
	if opened.http, err = o.flags.makeTransport(c.Endpoint); err != nil {
		return nil, err
	}
	var credential cosmos.Credential
	if opened.signer, credential, err = l.credential(); err != nil {
		return nil, fmt.Errorf("%s: %w", l.From, err)
	}
	o.flags.say("account %s: %s", c.Endpoint, c.keyFrom)
	opened.client, err = cosmos.Open(ctx, c.Endpoint, credential, cosmos.Options{
		Transport: opened.http, Logger: o.clientLog(), PreferredRegions: l.Regions, UserAgent: l.Agent,
	})
	switch {
	case err == nil:
		o.logins[l] = opened
		return opened, nil
	case Status(err) == http.StatusUnauthorized:
		return nil, fmt.Errorf("%w (%s)", err, c.keyFrom)
	}
	return nil, err
}

// credential returns the key or the identity, for both clients of an account.
func (l *Login) credential() (rest.Signer, cosmos.Credential, error) {
	if l.Identity == nil {
		signer, err := rest.Key(l.Key)
		return signer, cosmos.Key(l.Key), err
	}
	endpoint, err := url.Parse(l.Endpoint)
	if err != nil {
		return nil, cosmos.Credential{}, fmt.Errorf("account %q: %w", l.Endpoint, err)
	}
	return rest.Token(l.Identity, endpoint), cosmos.Token(l.Identity), nil
}

// gremlin is in the refusal of a lease container with the key /id by an account of the API for Gremlin.
const gremlin = "Gremlin"

// MakeLeases makes a lease container, and its database, as the trigger of Azure Functions does. If throughput is 0, the
// account chooses it.
func (o *Opener) MakeLeases(ctx context.Context, at Address, throughput int) (*Container, error) {
	a, err := o.Account(ctx, at)
	if err != nil {
		return nil, err
	}
	spec := leaseSpec("/id")
	err = a.create(ctx, at, spec, throughput)
	if errors.Is(err, feed.ErrBadRequest) && strings.Contains(err.Error(), gremlin) {
		spec = leaseSpec("/partitionKey")
		err = a.create(ctx, at, spec, throughput)
	}
	if err != nil {
		return nil, err
	}
	return o.Open(ctx, at)
}

// leaseSpec describes a lease container with a partition key path.
func leaseSpec(path string) docstore.ContainerSpec {
	spec := docstore.LeaseSpec("")
	spec.Paths = []string{path}
	return spec
}
