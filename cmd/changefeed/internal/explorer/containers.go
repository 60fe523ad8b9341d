package explorer

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/millrace/changefeed/cmd/changefeed/internal/items"
	"github.com/millrace/changefeed/cmd/changefeed/internal/place"
	"github.com/millrace/changefeed/cmd/changefeed/internal/usage"
	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
)

// A listing are the containers of a place.
type listing struct {
	In         string            `json:"in"`
	Containers []items.Container `json:"containers"`
	Error      *string           `json:"error"` // why the place cannot be listed
}

// listContainers answers with the containers of all places. A place that cannot be listed says why, beside the others.
func (e *Explorer) listContainers(w http.ResponseWriter, r *http.Request) error {
	all := e.all()
	if len(all) == 0 {
		return errNothing
	}
	listings := []listing{}
	for _, p := range all {
		l := listing{In: p.Name, Containers: []items.Container{}}
		err := p.use(r.Context(), func(o *place.Opener) error {
			whole := p.Whole
			whole.Database, whole.Container = "", ""
			found, err := items.List(r.Context(), o, whole)
			if errors.Is(err, feed.ErrForbidden) && p.Whole.Container != "" { // an identity for this container alone
				found, err = items.List(r.Context(), o, p.Whole)
			}
			l.Containers = append(l.Containers, found...)
			return err
		})
		if _, throttled := place.ThrottledFor(err); throttled && len(all) == 1 {
			return err
		}
		if err != nil {
			text := err.Error()
			l.Error = &text
		}
		listings = append(listings, l)
	}
	answer(w, http.StatusOK, map[string]any{"places": listings})
	return nil
}

// A partition is a physical partition, with its part of the key space from 0 to 1.
type partition struct {
	ID      string   `json:"id"`
	Range   string   `json:"range"`
	From    float64  `json:"from"`
	To      float64  `json:"to"`
	Parents []string `json:"parents"`
}

// described is a container with the partitions.
type described struct {
	items.Container
	Unit       string      `json:"unit_container"` // the name that units know
	Partitions []partition `json:"physical_partitions"`
	Cuts       bool        `json:"cuts_partitions"` // they are split and merged on demand
}

// describeContainer answers with a container.
func (e *Explorer) describeContainer(w http.ResponseWriter, r *http.Request) error {
	p, at, err := e.address(r)
	if err != nil {
		return err
	}
	var d described
	err = p.use(r.Context(), func(o *place.Opener) error {
		all, err := items.List(r.Context(), o, at)
		if err != nil {
			return err
		}
		c, err := o.Open(r.Context(), at)
		if err != nil {
			return err
		}
		parts, err := c.Source.Partitions(r.Context())
		d = described{all[0], at.Name(), partitionsOf(parts), c.CutsPartitions(r.Context())}
		return err
	})
	if err != nil {
		return err
	}
	answer(w, http.StatusOK, d)
	return nil
}

// partitionsOf are partitions as they are shown.
func partitionsOf(parts []feed.Partition) []partition {
	all := []partition{}
	for _, p := range parts {
		all = append(all, partition{
			p.ID, p.Range.String(), fraction(p.Range.Min, 0), fraction(p.Range.Max, 1),
			append([]string{}, p.Parents...),
		})
	}
	return all
}

// fraction is where an effective partition key lies in the key space; unless it has digits, at the edge.
func fraction(key string, edge float64) float64 {
	const digits = 8
	if key == "" || key == "FF" {
		return edge
	}
	for len(key) < digits {
		key += "0"
	}
	n, err := strconv.ParseUint(key[:digits], 16, 64)
	if err != nil {
		return edge
	}
	return min(float64(n)/(1<<30), 1) // the hash of a key has two leading zero bits
}

// maxRequest is how long the body of a request may be that is no document.
const maxRequest = 64 << 10

// decode reads the JSON of a request.
func decode(w http.ResponseWriter, r *http.Request, into any) error {
	d := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxRequest))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return usage.Error{Err: fmt.Errorf("the body is no JSON of this request: %w", err)}
	}
	return nil
}

// createContainer creates a container, and a missing database.
func (e *Explorer) createContainer(w http.ResponseWriter, r *http.Request) error {
	p, at, err := e.address(r)
	if err != nil {
		return err
	}
	var wanted struct {
		Paths      []string `json:"partition_key"`
		Partitions int      `json:"partitions"`
		TTL        *int     `json:"ttl_seconds"`
		Retention  float64  `json:"retention_seconds"`
	}
	if err := decode(w, r, &wanted); err != nil {
		return err
	}
	retention := time.Duration(wanted.Retention * float64(time.Second))
	const most = 10_000
	switch {
	case len(wanted.Paths) == 0:
		return usage.Error{Err: errors.New("partition_key is empty: want its paths, such as [\"/city\"]")}
	case wanted.Partitions < 0 || wanted.Partitions > most:
		return usage.Error{Err: fmt.Errorf("partitions is %d: want 1 to %d", wanted.Partitions, most)}
	case wanted.Retention < 0 || retention%time.Minute != 0:
		return usage.Error{Err: fmt.Errorf("retention_seconds is %v: want whole minutes, such as 600",
			wanted.Retention)}
	}
	given := map[string]bool{
		"pk": true, "ranges": wanted.Partitions > 0, "ttl": wanted.TTL != nil, "retention": retention > 0,
	}
	spec := docstore.ContainerSpec{
		Paths: wanted.Paths, Ranges: max(wanted.Partitions, 1), DefaultTTL: wanted.TTL, Retention: retention,
	}
	return p.use(r.Context(), func(o *place.Opener) error {
		_, _, err := o.MakeNew(r.Context(), at, place.Wanted{
			Spec: spec, Given: func(flag string) bool { return given[flag] },
		}, false)
		if err != nil {
			return err
		}
		all, err := items.List(r.Context(), o, at)
		if err != nil {
			return err
		}
		answer(w, http.StatusCreated, all[0])
		return nil
	})
}

// dropContainer deletes a container, whose name must be there twice.
func (e *Explorer) dropContainer(w http.ResponseWriter, r *http.Request) error {
	p, at, err := e.address(r)
	if err != nil {
		return err
	}
	if name := r.FormValue("confirm"); name != r.FormValue("container") {
		return usage.Error{Err: fmt.Errorf("confirm is %q: want %q, because all its documents are deleted", name,
			r.FormValue("container"))}
	}
	return p.use(r.Context(), func(o *place.Opener) error {
		all, err := items.List(r.Context(), o, at)
		if err != nil {
			return err
		}
		if err := items.Drop(r.Context(), o, at, all[0]); err != nil {
			return err
		}
		answer(w, http.StatusOK, map[string]any{"deleted": all[0].Name})
		return nil
	})
}

// split splits a partition, in the middle or at a key.
func (e *Explorer) split(w http.ResponseWriter, r *http.Request) error {
	var wanted struct {
		ID string `json:"id"`
		At string `json:"at"`
	}
	if err := decode(w, r, &wanted); err != nil {
		return err
	}
	t, err := e.open(r)
	if err != nil {
		return err
	}
	parts, err := t.Container().Split(r.Context(), wanted.ID, wanted.At)
	if err != nil {
		return err
	}
	answer(w, http.StatusOK, map[string]any{"made": partitionsOf(parts)})
	return nil
}

// merge merges two partitions whose ranges touch.
func (e *Explorer) merge(w http.ResponseWriter, r *http.Request) error {
	var wanted struct {
		IDs []string `json:"ids"`
	}
	if err := decode(w, r, &wanted); err != nil {
		return err
	}
	if len(wanted.IDs) != 2 {
		return usage.Error{Err: fmt.Errorf("ids is %q: want two partitions whose ranges touch", wanted.IDs)}
	}
	t, err := e.open(r)
	if err != nil {
		return err
	}
	parts, err := t.Container().Merge(r.Context(), wanted.IDs[0], wanted.IDs[1])
	if err != nil {
		return err
	}
	answer(w, http.StatusOK, map[string]any{"made": partitionsOf(parts)})
	return nil
}
