package place

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
)

// CutsPartitions reports whether the container's partitions are split and merged on demand: not in the service.
func (c *Container) CutsPartitions(ctx context.Context) bool {
	return c.Local != nil || c.Account.cutsPartitions(ctx)
}

// cutsPartitions reports whether the account splits partitions on demand. Only changefeed serve does, and its
// description names the extensions of the service.
func (a *Account) cutsPartitions(ctx context.Context) bool {
	var described struct{ Changefeed *struct{} }
	return a.call(ctx, http.MethodGet, nil, "", nil, &described) == nil && described.Changefeed != nil
}

// properties are the properties of a container that an import sets.
type properties struct {
	ID           string       `json:"id"`
	PartitionKey keyOfAccount `json:"partitionKey"`
	DefaultTTL   *int         `json:"defaultTtl,omitempty"`
	Policy       *feedPolicy  `json:"changeFeedPolicy,omitempty"`
}

// keyOfAccount is a partition key definition on the wire.
type keyOfAccount struct {
	Paths   []string `json:"paths"`
	Kind    string   `json:"kind"`
	Version int      `json:"version"`
}

// feedPolicy says how long a container keeps all versions, in whole minutes.
type feedPolicy struct {
	Minutes int `json:"retentionDuration"`
}

// spec returns the partition key paths, time to live and retention of a container.
func (a *Account) spec(ctx context.Context, at Address) (s docstore.ContainerSpec, err error) {
	var p properties
	if err := a.call(ctx, http.MethodGet, []string{"dbs", at.Database, "colls", at.Container}, "", nil,
		&p); err != nil {
		return s, fmt.Errorf("read container: %w", err)
	}
	if p.ID == "" || len(p.PartitionKey.Paths) == 0 {
		return s, a.strangeAnswer(http.MethodGet, "/dbs/"+at.Database+"/colls/"+at.Container,
			errors.New("is no container"))
	}
	s = docstore.ContainerSpec{Paths: p.PartitionKey.Paths, DefaultTTL: p.DefaultTTL}
	if p.Policy != nil {
		s.Retention = time.Duration(p.Policy.Minutes) * time.Minute
	}
	return s, nil
}

// Spec returns the partition key paths, time to live and retention of an open container.
func (o *Opener) Spec(ctx context.Context, c *Container) (docstore.ContainerSpec, error) {
	if c.Local != nil {
		return c.Local.Spec(), nil
	}
	return c.Account.spec(ctx, c.Address)
}

// create makes a container, and the database. A conflict is no error, because another import may make the same at this
// moment. The retention is in whole minutes, the unit of the service's policy. If ru is 0, the account chooses the
// throughput.
func (a *Account) create(ctx context.Context, at Address, s docstore.ContainerSpec, ru int) error {
	var made struct{}
	err := a.call(ctx, http.MethodPost, nil, "dbs", map[string]string{"id": at.Database}, &made)
	if err != nil && !errors.Is(err, feed.ErrConflict) {
		return fmt.Errorf("create database: %w", err)
	}
	// Without version 2 an account would hash keys for old clients, by the first 100 bytes of a string.
	p := properties{ID: at.Container, PartitionKey: keyOfAccount{s.Paths, "Hash", 2}, DefaultTTL: s.DefaultTTL}
	if len(s.Paths) > 1 {
		p.PartitionKey.Kind = "MultiHash"
	}
	if s.Retention > 0 {
		p.Policy = &feedPolicy{int(s.Retention / time.Minute)}
	}
	body, err := json.Marshal(p)
	if err != nil {
		return fmt.Errorf("write container: %w", err)
	}
	q := Request{
		Method: http.MethodPost, Resource: []string{"dbs", at.Database, "colls"}, Body: body,
		Want: []string{"id", "_rid"},
	}
	if ru > 0 {
		q.Header = map[string]string{"X-Ms-Offer-Throughput": strconv.Itoa(ru)}
	}
	_, err = a.Send(ctx, q)
	if err != nil && !errors.Is(err, feed.ErrConflict) {
		return fmt.Errorf("create container: %w", err)
	}
	return nil
}

// CreateLeases makes a lease container.
func (o *Opener) CreateLeases(ctx context.Context, at Address) (*Container, error) {
	if at.Dir == "" {
		a, err := o.Account(ctx, at)
		if err != nil {
			return nil, err
		}
		// The processor's client makes lease containers in the necessary form.
		if _, err := a.client.CreateLeaseContainer(ctx, at.Database, at.Container); err != nil {
			return nil, err
		}
		return o.Open(ctx, at)
	}
	return o.CreateOrOpen(ctx, at, docstore.LeaseSpec(at.Container))
}

// CreateOrOpen makes a container as Create does, or opens the one that somebody else has made in the meantime.
func (o *Opener) CreateOrOpen(ctx context.Context, at Address, spec docstore.ContainerSpec) (*Container, error) {
	c, err := o.Create(ctx, at, spec)
	if errors.Is(err, feed.ErrConflict) {
		return o.Open(ctx, at)
	}
	return c, err
}

// Create makes a container with the paths, time to live and retention of a specification, in an existing store, or in
// an account together with the database.
func (o *Opener) Create(ctx context.Context, at Address, spec docstore.ContainerSpec) (*Container, error) {
	if at.Dir == "" {
		a, err := o.Account(ctx, at)
		if err != nil {
			return nil, err
		}
		if err := a.create(ctx, at, spec, 0); err != nil {
			return nil, err
		}
		return o.Open(ctx, at)
	}
	db, err := o.openExisting(at)
	if err != nil {
		return nil, err
	}
	spec.Database, spec.ID = at.Database, at.Container
	c, err := db.CreateContainer(ctx, spec)
	if err != nil {
		return nil, err
	}
	return Stored(c, at), nil
}
