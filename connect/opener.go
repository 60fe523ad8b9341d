package connect

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/millrace/changefeed/cosmos"
	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/address"
	"github.com/millrace/changefeed/internal/cosmosdb/rest"
	"github.com/millrace/changefeed/internal/cosmosdb/service"
)

// The variables of the command changefeed.
const (
	endpointVariable   = "COSMOS_ENDPOINT"
	keyVariable        = "COSMOS_KEY"
	connectionVariable = "COSMOS_CONNECTION_STRING"
)

// opener opens each store and each account once, because a second opening of a store fails.
type opener struct {
	options Options
	stores  map[string]*docstore.DB
	clients map[string]*cosmos.Client
}

// newOpener makes an opener that has nothing open.
func newOpener(o Options) *opener {
	return &opener{options: o, stores: map[string]*docstore.DB{}, clients: map[string]*cosmos.Client{}}
}

// close closes everything that is open.
func (o *opener) close() error {
	var errs []error
	for _, db := range o.stores {
		errs = append(errs, db.Close())
	}
	for _, client := range o.clients {
		client.Close()
	}
	clear(o.stores)
	clear(o.clients)
	return errors.Join(errs...)
}

// find opens a container. If create is not nil, find makes a missing container.
func (o *opener) find(ctx context.Context, at address.Address, create *docstore.ContainerSpec) (Container, error) {
	if create != nil {
		create = new(*create)
		create.Database, create.ID = at.Database, at.Container
	}
	// A nil pointer in an interface is not nil, so both calls return before the conversion if there is an error.
	if at.Dir != "" {
		c, err := o.findStored(ctx, at, create)
		if err != nil {
			return nil, err
		}
		return c, sameKey(at, create, c.KeyPaths())
	}
	c, err := o.findRemote(ctx, at, create)
	if err != nil {
		return nil, err
	}
	return c, sameKey(at, create, c.KeyPaths())
}

// sameKey refuses an existing container whose partition key differs from the caller's.
func sameKey(at address.Address, create *docstore.ContainerSpec, found [][]string) error {
	if create == nil {
		return nil
	}
	var paths []string
	for _, path := range found {
		paths = append(paths, "/"+strings.Join(path, "/"))
	}
	isLease := slices.Equal(create.Paths, []string{"/id"}) && slices.Equal(paths, []string{"/partitionKey"})
	if slices.Equal(paths, create.Paths) || isLease {
		return nil
	}
	return fmt.Errorf("container %s/%s exists with partition key %s: want %s, or another container: %w", at.Database,
		at.Container, strings.Join(paths, ","), strings.Join(create.Paths, ","), feed.ErrConflict)
}

// findStored opens or makes a container of a store.
func (o *opener) findStored(ctx context.Context, at address.Address, create *docstore.ContainerSpec,
) (*docstore.Container, error) {
	db, err := o.store(ctx, at.Dir, create == nil)
	if err != nil {
		return nil, err
	}
	c, err := db.Container(at.Database + "/" + at.Container)
	if !errors.Is(err, feed.ErrNotFound) || create == nil {
		return c, err
	}
	if _, err := db.CreateDatabase(ctx, at.Database, nil); err != nil && !errors.Is(err, feed.ErrConflict) {
		return nil, err
	}
	return db.CreateContainer(ctx, *create)
}

// store opens the store of a directory, unless the store is open already.
func (o *opener) store(ctx context.Context, dir string, mustExist bool) (*docstore.DB, error) {
	whole, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("open store: %w", err)
	}
	if db := o.stores[whole]; db != nil {
		return db, nil
	}
	options := o.options.Store
	options.MustExist = options.MustExist || mustExist
	db, err := docstore.OpenContext(ctx, dir, options)
	if err == nil {
		o.stores[whole] = db
	}
	return db, err
}

// findRemote opens or makes a container of an account.
func (o *opener) findRemote(ctx context.Context, at address.Address, create *docstore.ContainerSpec,
) (*cosmos.Container, error) {
	client, err := o.client(ctx, at.Endpoint)
	if err != nil {
		return nil, err
	}
	c, err := client.Container(ctx, at.Database, at.Container)
	if !errors.Is(err, feed.ErrNotFound) || create == nil {
		return c, err
	}
	if create.HashVersion == 1 || len(create.UniqueKeys) > 0 || len(create.Meta) > 0 {
		return nil, fmt.Errorf("create container %s/%s: HashVersion 1, UniqueKeys and Meta are for stores only: want a "+
			"container made by other means: %w", at.Database, at.Container, feed.ErrBadRequest)
	}
	return client.CreateContainer(ctx, at.Database, at.Container, cosmos.ContainerSpec{
		Paths: create.Paths, DefaultTTL: create.DefaultTTL, Retention: create.Retention,
	})
}

// client opens an account, unless the account is open already. Without an endpoint the account is that of the
// environment.
func (o *opener) client(ctx context.Context, endpoint string) (*cosmos.Client, error) {
	named, key, err := fromEnvironment()
	if err != nil {
		return nil, err
	}
	if endpoint = cmp.Or(endpoint, named); endpoint == "" {
		return nil, fmt.Errorf("no account is named: want $%s or $%s, or an address with https://: %w", endpointVariable,
			connectionVariable, feed.ErrBadRequest)
	}
	if client := o.clients[endpoint]; client != nil {
		return client, nil
	}
	credential := o.options.Credential
	if credential == (cosmos.Credential{}) {
		if credential, err = keyFor(endpoint, named, key); err != nil {
			return nil, err
		}
	}
	client, err := cosmos.Open(ctx, endpoint, credential, o.options.Cosmos)
	if err == nil {
		o.clients[endpoint] = client
	}
	return client, err
}

// hostOf returns the host and the port of an endpoint. An invalid endpoint is refused at the first use.
func hostOf(endpoint string) (host, port string) {
	u, err := url.Parse(endpoint)
	if err != nil {
		return "", ""
	}
	port = "443"
	if u.Scheme == "http" {
		port = "80"
	}
	return strings.ToLower(u.Hostname()), cmp.Or(u.Port(), port)
}

// keyFor returns the key of an account, if the program has been given no credential.
func keyFor(endpoint, named, key string) (cosmos.Credential, error) {
	host, port := hostOf(endpoint)
	if known, knownPort := hostOf(named); named != "" && (known != host || knownPort != port) {
		key = "" // the key of another account
	}
	if key == "" && address.IsLoopback(host) {
		key = service.EmulatorKey
	}
	if key == "" {
		return cosmos.Credential{}, fmt.Errorf("there is no key for %s: want Options.Credential, or the account's key "+
			"in $%s: %w", endpoint, keyVariable, feed.ErrForbidden)
	}
	return cosmos.Key(key), nil
}

// fromEnvironment returns the account that the variables name, if they do, and the key.
func fromEnvironment() (endpoint, key string, err error) {
	endpoint, key = os.Getenv(endpointVariable), os.Getenv(keyVariable)
	text := os.Getenv(connectionVariable)
	if text == "" || endpoint != "" {
		return endpoint, key, nil
	}
	endpoint, connectionKey, ok := rest.ParseConnection(text)
	if !ok { // the error leaves out the text, which is a secret
		return "", "", fmt.Errorf("$%s has no AccountEndpoint or no AccountKey: want "+
			"AccountEndpoint=https://HOST:PORT/;AccountKey=KEY;: %w", connectionVariable, feed.ErrBadRequest)
	}
	return endpoint, connectionKey, nil
}
