package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"slices"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"

	"github.com/millrace/changefeed/cosmos"
	"github.com/millrace/changefeed/cosmosrest"
	"github.com/millrace/changefeed/deadletters"
	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
)

// containers are the container of contacts and the parts that the relay needs in addition.
type containers struct {
	store   store
	source  feed.Source // the feed of store
	leases  feed.LeaseStore
	letters feed.LetterBox
	isAlone bool // no other process can use the leases
	close   func() error
}

// The names of the other containers.
const (
	leasesName  = "leases"
	lettersName = "letters"
)

// place says where a container is: in a store of this process or, if dir is empty, in an account.
type place struct {
	dir, endpoint, database, container string
}

const addressForms = "docstore:DIR#CONTAINER or https://HOST:PORT/DATABASE/CONTAINER"

// parseAddress parses an address from a flag.
func parseAddress(flag, text string) (a place, err error) {
	if rest, ok := strings.CutPrefix(text, "docstore:"); ok {
		a.dir, a.container, _ = strings.Cut(rest, "#")
		if a.database = docstore.DefaultDatabase; a.dir != "" && a.container != "" &&
			!strings.Contains(a.container, "/") {
			return a, nil
		}
	} else if u, err := url.Parse(text); err == nil && (u.Scheme == "https" || u.Scheme == "http") {
		a.endpoint = u.Scheme + "://" + u.Host
		a.database, a.container, _ = strings.Cut(strings.Trim(u.Path, "/"), "/")
		if u.Hostname() != "" && a.database != "" && a.container != "" && !strings.Contains(a.container, "/") {
			return a, nil
		}
	}
	return place{}, fmt.Errorf("%s is %q: want %s", flag, text, addressForms)
}

// openContainers opens the containers, and creates missing containers if possible. The leases, and the dead letters
// next to them, are in the same store or account as the contacts.
func openContainers(ctx context.Context, contacts, leases string) (*containers, error) {
	at, err := parseAddress("--contacts", contacts)
	if err != nil {
		return nil, err
	}
	beside := at
	beside.container = leasesName
	if leases != "" {
		if beside, err = parseAddress("--leases", leases); err != nil {
			return nil, err
		}
	}
	if beside.dir != at.dir || beside.endpoint != at.endpoint {
		return nil, fmt.Errorf("--leases is %s: want a container in the store or account of --contacts, which is %s",
			leases, contacts)
	}
	if at.dir != "" {
		return openStore(ctx, at, beside)
	}
	return openAccount(ctx, at, beside)
}

// openStore opens the containers of a store. openStore creates a missing store.
func openStore(ctx context.Context, contacts, beside place) (c *containers, err error) {
	db, err := docstore.Open(contacts.dir, docstore.Options{})
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, db.Close())
		}
	}()
	// Documents may expire, each by its own time to live.
	spec := docstore.ContainerSpec{
		ID: contacts.container, Paths: []string{"/partitionKey"},
		DefaultTTL: new(docstore.NoDefaultTTL), Ranges: 4,
	}
	store, err := openOrCreate(ctx, db, spec)
	if err != nil {
		return nil, err
	}
	if has := store.Spec(); !slices.Equal(has.Paths, spec.Paths) || has.DefaultTTL == nil ||
		*has.DefaultTTL != docstore.NoDefaultTTL {
		return nil,
			fmt.Errorf("--contacts is docstore:%s#%s: want a container with the partition key /partitionKey and the "+
				"default time to live -1",
				contacts.dir, contacts.container)
	}
	leases, err := openOrCreate(ctx, db, docstore.LeaseSpec(beside.container))
	if err != nil {
		return nil, err
	}
	letters, err := openOrCreate(ctx, db, docstore.ContainerSpec{ID: lettersName, Paths: []string{deadletters.KeyPath}})
	if err != nil {
		return nil, err
	}
	c = &containers{store: store, source: store, isAlone: true, close: db.Close}
	if c.leases, err = docstore.NewLeases(ctx, leases, processorName, store); err != nil {
		return nil, err
	}
	c.letters, err = deadletters.Container(letters, processorName, store)
	return c, err
}

// openOrCreate creates a container, or opens an existing container.
func openOrCreate(ctx context.Context, db *docstore.DB, spec docstore.ContainerSpec) (*docstore.Container, error) {
	c, err := db.CreateContainer(ctx, spec)
	if errors.Is(err, feed.ErrConflict) {
		return db.Container(spec.ID)
	}
	return c, err
}

// openAccount opens the containers of an account, either of Azure Cosmos DB or of changefeed serve. The container of
// contacts must exist, because you choose its throughput when you create the container. The others are created if the
// account has a key.
func openAccount(ctx context.Context, contacts, beside place) (c *containers, err error) {
	credential, err := credentialFor(contacts.endpoint)
	if err != nil {
		return nil, err
	}
	client, err := cosmos.Open(ctx, contacts.endpoint, credential, cosmos.Options{})
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			client.Close()
		}
	}()
	store, err := client.Container(ctx, contacts.database, contacts.container)
	if errors.Is(err, feed.ErrNotFound) {
		return nil,
			fmt.Errorf("--contacts is %s/%s/%s: %w: make it with the partition key /partitionKey and the default "+
				"time to live -1",
				contacts.endpoint, contacts.database, contacts.container, err)
	}
	if err != nil {
		return nil, err
	}
	leases, err := client.Container(ctx, beside.database, beside.container)
	if errors.Is(err, feed.ErrNotFound) {
		leases, err = client.CreateLeaseContainer(ctx, beside.database, beside.container)
	}
	if err != nil {
		return nil, err
	}
	letters, err := client.Container(ctx, beside.database, lettersName)
	if errors.Is(err, feed.ErrNotFound) {
		letters, err = client.CreateLetterContainer(ctx, beside.database, lettersName)
	}
	if err != nil {
		return nil, err
	}
	c = &containers{store: store, source: store, close: func() error { client.Close(); return nil }}
	if c.leases, err = cosmos.OpenLeases(ctx, leases, processorName, store, cosmos.LeaseOptions{}); err != nil {
		return nil, err
	}
	c.letters, err = deadletters.Container(letters, processorName, store)
	return c, err
}

// keyVariable is the environment variable with the key of an account.
const keyVariable = "COSMOS_KEY"

// credentialFor returns the credential for an account: the account's key or, if there is none, this machine's
// identity. On a loopback address, the account is an emulator, whose key everyone knows.
func credentialFor(endpoint string) (cosmos.Credential, error) {
	if key := os.Getenv(keyVariable); key != "" {
		return cosmos.Key(key), nil
	}
	if u, err := url.Parse(endpoint); err == nil {
		if ip := net.ParseIP(u.Hostname()); u.Hostname() == "localhost" || ip != nil && ip.IsLoopback() {
			return cosmos.Key(cosmosrest.EmulatorKey), nil
		}
	}
	identity, err := azidentity.NewDefaultAzureCredential(nil)
	return cosmos.Token(identity), err
}
