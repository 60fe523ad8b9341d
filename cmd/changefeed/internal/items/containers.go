package items

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/millrace/changefeed/cmd/changefeed/internal/place"
	"github.com/millrace/changefeed/cmd/changefeed/internal/report"
	"github.com/millrace/changefeed/cmd/changefeed/internal/terminal"
	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/cosmosdb/rawjson"
)

// A Container describes a container.
type Container struct {
	Name       string   `json:"name" about:"DATABASE/CONTAINER"`
	Paths      []string `json:"partition_key" about:"paths of the partition key"`
	Partitions *int     `json:"partitions" about:"number of physical partitions; null if unknown"`
	Documents  *int64   `json:"documents" about:"number of documents; null if unknown"`
	TTL        *int     `json:"ttl_seconds" about:"time to live of documents; -1 if only their own counts, null if none expires"`
	Retention  *float64 `json:"retention_seconds" about:"how long all versions and deletes are kept for the feed; null if the container has no policy"`
	Throughput *int     `json:"throughput" about:"request units a second, the maximum with autoscale; null if the container has no throughput of its own"`

	rid string // resource id
}

// ReportedAs implements [report.Value].
func (Container) ReportedAs() string { return "container" }

// Kind describes the rows of containers.
var Kind = report.Kind{Name: "container", About: "A container, by changefeed containers.", Of: Container{}}

// An account is the target of requests.
type account struct {
	*place.Account
	throughput map[string]int // by resource id of the container; nil if the offers cannot be read
}

// properties are the members of a container's resource that are shown.
type properties struct {
	ID           string `json:"id"`
	RID          string `json:"_rid"`
	PartitionKey struct {
		Paths []string `json:"paths"`
	} `json:"partitionKey"`
	TTL    *int `json:"defaultTtl"`
	Policy *struct {
		Minutes int `json:"retentionDuration"`
	} `json:"changeFeedPolicy"`
}

// containerMembers are members that each container has.
var containerMembers = []string{"id", "_rid", "partitionKey"}

// List describes the containers at an address: all containers of a store, an account or a database, or a single
// container.
func List(ctx context.Context, o *place.Opener, at place.Address) ([]Container, error) {
	opened, err := o.Account(ctx, at)
	if err != nil {
		return nil, err
	}
	a := account{Account: opened}
	a.readThroughput(ctx)
	if at.Container != "" {
		c, err := a.describeOne(ctx, o, at)
		return []Container{c}, err
	}
	databases := []string{at.Database}
	if at.Database == "" {
		if databases, err = a.IDs(ctx, "Databases", "dbs"); err != nil {
			return nil, err
		}
	}
	var all []Container
	for _, database := range databases {
		found, err := a.List(ctx, "DocumentCollections", "dbs", database, "colls")
		if errors.Is(err, feed.ErrNotFound) {
			known, _ := a.IDs(ctx, "Databases", "dbs") // without the right to list there are no names
			return nil, place.NoDatabase(at, known)
		}
		if err != nil {
			return nil, err
		}
		for _, text := range found {
			c, err := a.describe(ctx, database, text)
			if err != nil {
				return nil, err
			}
			all = append(all, c)
		}
	}
	slices.SortFunc(all, func(a, b Container) int { return strings.Compare(a.Name, b.Name) })
	return all, nil
}

// readThroughput reads the throughput of all containers. Some identities may not read the throughput.
func (a *account) readThroughput(ctx context.Context) {
	offers, err := a.List(ctx, "Offers", "offers")
	if err != nil {
		return
	}
	a.throughput = map[string]int{}
	for _, text := range offers {
		var offer struct {
			RID     string `json:"offerResourceId"`
			Content struct {
				Manual    int `json:"offerThroughput"`
				Autoscale *struct {
					Maximum int `json:"maxThroughput"`
				} `json:"offerAutopilotSettings"`
			} `json:"content"`
		}
		if json.Unmarshal(text, &offer) != nil {
			continue
		}
		if offer.Content.Autoscale != nil {
			offer.Content.Manual = offer.Content.Autoscale.Maximum
		}
		a.throughput[offer.RID] = offer.Content.Manual
	}
}

// describeOne describes a single container.
func (a account) describeOne(ctx context.Context, o *place.Opener, at place.Address) (Container, error) {
	// For a missing container, Open lists the existing names.
	if _, err := o.Open(ctx, at); err != nil {
		return Container{}, err
	}
	reply, err := a.Send(ctx, place.Request{
		Method: http.MethodGet, Resource: []string{"dbs", at.Database, "colls", at.Container}, Want: containerMembers,
	})
	if err != nil {
		return Container{}, err
	}
	return a.describe(ctx, at.Database, reply.Body)
}

// describe describes a container from its resource. Unreadable values are unknown.
func (a account) describe(ctx context.Context, database string, text []byte) (c Container, err error) {
	var p properties
	if err := json.Unmarshal(text, &p); err != nil {
		return c, err
	}
	c = Container{
		Name: database + "/" + p.ID, Paths: append([]string{}, p.PartitionKey.Paths...), TTL: p.TTL, rid: p.RID,
	}
	if p.Policy != nil {
		seconds := (time.Duration(p.Policy.Minutes) * time.Minute).Seconds()
		c.Retention = &seconds
	}
	if ru, ok := a.throughput[p.RID]; ok {
		c.Throughput = &ru
	}
	resource := []string{"dbs", database, "colls", p.ID}
	if parts, err := a.List(ctx, "PartitionKeyRanges", append(resource, "pkranges")...); err == nil {
		n := len(parts)
		c.Partitions = &n
	}
	reply, err := a.Send(ctx, place.Request{
		Method: http.MethodGet, Resource: resource, Want: containerMembers,
		Header: map[string]string{"X-Ms-Documentdb-Populatequotainfo": "true"},
	})
	if err == nil {
		c.Documents = countIn(reply.Header.Get("X-Ms-Resource-Usage"))
	}
	return c, ctx.Err()
}

// countIn returns the number of documents in a text such as functions=0;documentsCount=7;
func countIn(usage string) *int64 {
	for part := range strings.SplitSeq(usage, ";") {
		if text, ok := strings.CutPrefix(part, "documentsCount="); ok {
			if n, err := strconv.ParseInt(text, 10, 64); err == nil {
				return &n
			}
		}
	}
	return nil
}

// Row returns the container as cells of a table with the heading [Heading].
func (c Container) Row() []string {
	row := []string{
		terminal.OneLine(c.Name), terminal.OneLine(strings.Join(c.Paths, ",")), number(c.Partitions),
		number(c.Documents), "-", "-", number(c.Throughput),
	}
	if c.TTL != nil {
		row[4] = lifetime(*c.TTL)
	}
	if c.Retention != nil {
		row[5] = terminal.Seconds(*c.Retention)
	}
	return row
}

// Heading is the heading of a table of containers. The last cell of each row is for notes.
var Heading = []string{"CONTAINER", "PARTITION KEY", "PARTITIONS", "DOCUMENTS", "TTL", "RETENTION", "RU/S"}

// lifetime returns a time to live in the form of --ttl; -1 leaves it to the documents.
func lifetime(seconds int) string {
	if seconds < 0 {
		return strconv.Itoa(seconds)
	}
	return terminal.Exact(time.Duration(seconds) * time.Second)
}

// number returns a number that may be unknown.
func number[N int | int64](n *N) string {
	if n == nil {
		return "-"
	}
	return strconv.FormatInt(int64(*n), 10)
}

// Contents returns the number of documents in words.
func (c Container) Contents() string {
	if c.Documents == nil {
		return "all its documents"
	}
	return terminal.Count(*c.Documents, "document")
}

// ErrReplaced means that a container is not the described container any more.
var ErrReplaced = errors.New("the container was dropped meanwhile, and another one has its name: nothing was deleted")

// Drop deletes a container with all documents, unless it is another container than the described container. A container
// that is replaced between the comparison and the deletion is deleted, because the service deletes by name.
func Drop(ctx context.Context, o *place.Opener, at place.Address, described Container) error {
	a, err := o.Account(ctx, at)
	if err != nil {
		return err
	}
	resource := []string{"dbs", at.Database, "colls", at.Container}
	reply, err := a.Send(ctx, place.Request{Method: http.MethodGet, Resource: resource, Want: containerMembers})
	if err != nil {
		return err
	}
	if rawjson.Text(rawjson.Lookup(reply.Body, "_rid")) != described.rid {
		return fmt.Errorf("%s: %w", at.Quote(), ErrReplaced)
	}
	_, err = a.Send(ctx, place.Request{Method: http.MethodDelete, Resource: resource})
	return err
}
