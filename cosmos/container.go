package cosmos

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/cosmosdb/epk"
	"github.com/millrace/changefeed/internal/cosmosdb/pkey"
	"github.com/millrace/changefeed/internal/cosmosdb/rest"
	"github.com/millrace/changefeed/internal/cosmosdb/service"
)

// The client reads a container when it is opened, and not again: the paths and the kind of the key cannot change, and
// the resource id shows if another container has taken the name.

// Container is a container of the account. As a [feed.Source] and a
// [feed.Committer] it serves processors and outboxes. All methods may be called
// concurrently.
type Container struct {
	client    *Client
	database  string
	id        string
	rid       string
	paths     []pkey.Path
	hash      epk.Kind
	expires   bool          // items can have a time to live
	keyless   bool          // the container was made without a partition key
	retention time.Duration // of all versions and deletes
	docs      rest.Resource // the items
	ranges    *rangeCache
	hub       bool // every request goes to the first write region
}

// Container finds a container and reads its properties. If the container is missing, the error is [feed.ErrNotFound];
// [Client.CreateLeaseContainer] makes a lease container.
func (c *Client) Container(ctx context.Context, database, id string) (*Container, error) {
	found := &Container{client: c, database: database, id: id, ranges: newRangeCache()}
	if database == "" || id == "" {
		return nil, badRequest("container is %q: want database/container, neither of them empty", found.name())
	}
	found.docs = found.resourceAt("docs")
	a, err := c.do(ctx, request{method: http.MethodGet, at: found.resourceAt(), action: actionMetadata})
	if err == nil {
		err = found.parseProperties(a.body)
	}
	if err != nil {
		return nil, fmt.Errorf("open container %s: %w", found.name(), err)
	}
	return found, nil
}

func (c *Container) name() string { return c.database + "/" + c.id }

// resourceAt returns the resource with this path below the container.
func (c *Container) resourceAt(segments ...string) rest.Resource {
	return rest.At(append([]string{"dbs", c.database, "colls", c.id}, segments...)...)
}

// ID returns the container's id.
func (c *Container) ID() string { return c.id }

// Database returns the id of the container's database.
func (c *Container) Database() string { return c.database }

// RID returns the container's resource id. A container that is made anew has another resource id.
func (c *Container) RID() string { return c.rid }

// parseProperties reads the properties of the container.
func (c *Container) parseProperties(body []byte) error {
	var said struct {
		RID          string `json:"_rid"`
		DefaultTTL   *int   `json:"defaultTtl"`
		PartitionKey struct {
			Paths     []string
			Kind      string
			Version   int
			SystemKey bool
		}
		ChangeFeedPolicy struct{ RetentionDuration int64 } // minutes
	}
	if err := json.Unmarshal(body, &said); err != nil {
		return fmt.Errorf("parse properties: %w", err)
	}
	if said.RID == "" {
		return errors.New("properties have no _rid: want the resource id of the container")
	}
	if len(said.PartitionKey.Paths) == 0 {
		said.PartitionKey.Paths, said.PartitionKey.SystemKey = []string{systemKeyPath}, true
	}
	c.keyless = said.PartitionKey.SystemKey
	c.rid, c.expires = said.RID, said.DefaultTTL != nil
	c.retention = time.Duration(said.ChangeFeedPolicy.RetentionDuration) * time.Minute
	var err error
	if c.paths, err = pkey.ParsePaths(said.PartitionKey.Paths); err != nil {
		return fmt.Errorf("parse properties: %w", err)
	}
	switch {
	case strings.EqualFold(said.PartitionKey.Kind, "MultiHash"):
		c.hash = epk.MultiHash
	case said.PartitionKey.Version == 2:
		c.hash = epk.HashV2
	// Definitions by old SDKs have no version, which means version 1.
	default:
		c.hash = epk.HashV1
	}
	return nil
}

// systemKeyPath is the partition key path of containers that were made without one. Newer versions of the protocol name
// this path, with systemKey; older ones name none. Documents without the member have no key.
const systemKeyPath = "/_partitionKey"

// keyHeader returns the value of the partition key header. Documents of a container without a partition key that have
// no key are named by an empty list, not by an undefined value.
func (c *Container) keyHeader(key string) string {
	if c.keyless && key == "[{}]" {
		return "[]"
	}
	return ascii(key)
}

// do sends a request. A request about items names the resource id of the container. If the container was made anew, the
// service then refuses the request: continuations of the old container would skip changes of the new container.
func (c *Container) do(ctx context.Context, r request) (*answer, error) {
	r.hub = c.hub
	if r.at.Kind == "docs" {
		r.rid = c.rid
	}
	return c.client.do(ctx, r)
}

// parseKey reads a key of the container, with all its levels.
func (c *Container) parseKey(key feed.PartitionKey) (pkey.Key, error) {
	k, err := pkey.Parse(string(key))
	if err == nil && k.Len() != len(c.paths) {
		err = badRequest("partition key %s has %d components: want %d, one for each of %v", key, k.Len(), len(c.paths),
			c.paths)
	}
	return k, err
}

// KeyPaths returns the partition key paths, each as the names of its members.
func (c *Container) KeyPaths() [][]string {
	var paths [][]string
	for _, p := range c.paths {
		paths = append(paths, p)
	}
	return paths
}

// Locate implements [feed.Locator], without a request.
func (c *Container) Locate(_ context.Context, key feed.PartitionKey) (epk string, err error) {
	if epk, err = c.placeOf(key); err != nil {
		return "", fmt.Errorf("locate in %q: %w", c.id, err)
	}
	return epk, nil
}

// TokenLSN implements [feed.Sequencer]: the service's tokens of a change feed are LSNs in quotes. For any other text ok
// is false.
func (c *Container) TokenLSN(token string) (lsn int64, ok bool) { return service.LSN(token) }

// TokenAfter implements [feed.Sequencer].
func (c *Container) TokenAfter(lsn int64) string { return service.Token(lsn) }

// placeOf checks a key and returns its effective partition key.
func (c *Container) placeOf(key feed.PartitionKey) (string, error) {
	k, err := c.parseKey(key)
	if err != nil {
		return "", err
	}
	place, err := epk.Hash(c.hash, k.Components())
	if err != nil {
		return "", badRequest("partition key %s: %v", key, err)
	}
	return place, nil
}

// CreateLeaseContainer makes a lease container in an existing database, with partition key /id and a time to live that
// applies only to records with a time to live of their own. An existing container stays unchanged. If your credential
// is an Entra ID identity, Azure refuses the request, because such identities must create containers through Azure's
// management interface.
func (c *Client) CreateLeaseContainer(ctx context.Context, database, id string) (*Container, error) {
	properties := indexOnlyIDs(map[string]any{"defaultTtl": -1})
	return c.createContainer(ctx, "lease ", database, id, []string{leaseKeyPath}, properties)
}

// CreateLetterContainer makes a container for dead letters in an existing database, with partition key /key as
// deadletters.Container requires. The documents never expire. Existing containers and credentials are treated as in
// [Client.CreateLeaseContainer].
func (c *Client) CreateLetterContainer(ctx context.Context, database, id string) (*Container, error) {
	return c.createContainer(ctx, "letter ", database, id, []string{letterKeyPath}, indexOnlyIDs(map[string]any{}))
}

// A ContainerSpec describes a container for [Client.CreateContainer].
type ContainerSpec struct {
	// Paths are the partition key paths, such as "/city". Two or three paths make a hierarchical key.
	Paths []string

	// DefaultTTL is the time to live of items, in seconds. Nil turns expiry off. With -1, items expire only if they
	// have a property ttl.
	DefaultTTL *int

	// Retention is how long all versions and deletes are kept, in whole minutes. 0 keeps the last versions only.
	Retention time.Duration
}

// CreateContainer makes a container, and its database if that is missing too. The account chooses the throughput.
// Existing containers and credentials are treated as in [Client.CreateLeaseContainer].
func (c *Client) CreateContainer(ctx context.Context, database, id string, spec ContainerSpec) (*Container, error) {
	if spec.Retention%time.Minute != 0 || spec.Retention < 0 {
		return nil, fmt.Errorf("create container %s/%s: %w", database, id,
			badRequest("retention is %v: want whole minutes, or 0", spec.Retention))
	}
	body, err := json.Marshal(map[string]string{"id": database})
	if err != nil {
		return nil, fmt.Errorf("create database %s: %w", database, err)
	}
	if err := c.create(ctx, rest.At("dbs"), body); err != nil {
		return nil, fmt.Errorf("create database %s: %w", database, err)
	}
	properties := map[string]any{}
	if spec.DefaultTTL != nil {
		properties["defaultTtl"] = *spec.DefaultTTL
	}
	if spec.Retention > 0 {
		properties["changeFeedPolicy"] = map[string]any{"retentionDuration": int(spec.Retention / time.Minute)}
	}
	return c.createContainer(ctx, "", database, id, spec.Paths, properties)
}

// letterKeyPath is the path of package deadletters, which this package does not import.
const letterKeyPath = "/key"

// indexOnlyIDs adds an indexing policy: queries use only ids, so the other members need no index.
func indexOnlyIDs(properties map[string]any) map[string]any {
	properties["indexingPolicy"] = map[string]any{
		"indexingMode": "consistent", "automatic": true,
		"includedPaths": []any{map[string]string{"path": "/id/?"}},
		"excludedPaths": []any{map[string]string{"path": "/*"}},
	}
	return properties
}

// createContainer makes a container with partition key paths and further properties, unless the container exists. The
// kind is empty or ends with a space.
func (c *Client) createContainer(ctx context.Context, kind, database, id string, paths []string,
	properties map[string]any,
) (*Container, error) {
	hash := "Hash"
	if len(paths) > 1 {
		hash = "MultiHash"
	}
	properties["id"] = id
	properties["partitionKey"] = map[string]any{"paths": paths, "kind": hash, "version": 2}
	body, err := json.Marshal(properties)
	if err == nil {
		err = c.create(ctx, rest.At("dbs", database, "colls"), body)
	}
	if err != nil {
		return nil, fmt.Errorf("create %scontainer %s/%s: %w", kind, database, id, err)
	}
	return c.Container(ctx, database, id)
}

// create makes a resource, unless the resource exists.
func (c *Client) create(ctx context.Context, at rest.Resource, body []byte) error {
	_, err := c.do(ctx, request{
		method: http.MethodPost, at: at, body: body, writes: true, header: fields{{headerContentType, jsonType}},
		action: actionManage,
	})
	if errors.Is(err, feed.ErrConflict) {
		return nil
	}
	return err
}

// tiles reports whether sorted partitions cover the key space without overlap.
func tiles(parts []feed.Partition) bool {
	edge := feed.FullRange().Min
	for _, partition := range parts {
		if partition.Range.Min != edge || partition.Range.Empty() {
			return false
		}
		edge = partition.Range.Max
	}
	return edge == feed.FullRange().Max
}

// byRange sorts partitions by range.
func byRange(parts []feed.Partition) {
	slices.SortFunc(parts, func(a, b feed.Partition) int { return strings.Compare(a.Range.Min, b.Range.Min) })
}
