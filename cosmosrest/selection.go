package cosmosrest

import (
	"math"
	"net/http"
	"strconv"
	"strings"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/docstore"
)

// selection is what of a container a request reads.
type selection struct {
	rng   changefeed.Range
	key   changefeed.PartitionKey // empty is all; a hierarchical one may lack its last levels
	named bool                    // the request names a partition or a range of keys
	part  string                  // id of the partition that it names; may be empty
}

// Headers that select documents and bound pages.
const (
	headerEndEPK   = "X-Ms-End-Epk"
	headerStartEPK = "X-Ms-Start-Epk"
)

// selection reads the headers that say which documents a request is about.
func (c *call) selection(cont *docstore.Container) (s selection, err error) {
	s.rng = changefeed.FullRange()
	if id := c.header(headerRangeID); id != "" {
		p, err := c.partition(cont, id)
		if err != nil {
			return s, err
		}
		s.part, s.rng, s.named = p.ID, p.Range, true
	}
	if s.key, err = c.partitionKey(); err != nil {
		return s, err
	}
	if c.header(headerStartEPK) == "" && c.header(headerEndEPK) == "" {
		return s, nil
	}
	s.named = true
	s.rng, err = c.narrow(s.rng)
	return s, err
}

// partition finds the partition of a range id, which may stand behind the container's
// resource id and a comma.
func (c *call) partition(cont *docstore.Container, id string) (changefeed.Partition, error) {
	if rid, bare, ok := strings.Cut(id, ","); ok {
		if rid != cont.RID() {
			return changefeed.Partition{}, badRequest("x-ms-documentdb-partitionkeyrangeid is %q: want the resource id %s before the comma", id, cont.RID())
		}
		id = bare
	}
	parts, err := cont.Partitions(c.ctx)
	if err != nil {
		return changefeed.Partition{}, err
	}
	for _, p := range parts {
		if p.ID == id {
			return p, nil
		}
	}
	return changefeed.Partition{}, gone("partition key range %q of container %q is gone: read the ranges again", id, cont.ID())
}

func gone(format string, args ...any) *fault {
	return newFault(http.StatusGone, subRangeGone, "Gone", format, args...)
}

// narrow applies the headers for a range of effective partition keys. An empty bound is
// that of the partition.
func (c *call) narrow(r changefeed.Range) (changefeed.Range, error) {
	sub := r
	for _, bound := range []struct {
		header string
		to     *string
	}{{headerStartEPK, &sub.Min}, {headerEndEPK, &sub.Max}} {
		text := c.header(bound.header)
		if text == "" {
			continue
		}
		if len(text) > maxEPK || strings.Trim(text, "0123456789ABCDEFabcdef") != "" {
			return sub, badRequest("%s is %.64q: want an effective partition key in hexadecimal digits", strings.ToLower(bound.header), text)
		}
		*bound.to = strings.ToUpper(text)
	}
	switch {
	case sub.Empty():
		return sub, badRequest("x-ms-start-epk is %q and x-ms-end-epk is %q: want a start below the end", sub.Min, sub.Max)
	case !r.Contains(sub):
		return sub, gone("keys %s are not all in range %s: read the ranges again", sub, r)
	}
	return sub, nil
}

// maxEPK is more digits than any effective partition key has.
const maxEPK = 256

// within is the part of the selection's range in which its key lies; it may be empty.
func (s *selection) within(cont *docstore.Container) (changefeed.Range, error) {
	if s.key == "" {
		return s.rng, nil
	}
	at, err := cont.Locate(s.key)
	return s.rng.Intersect(at), err
}

// maxItems reads x-ms-max-item-count; none and -1, which leaves it to the server, are 0.
func (c *call) maxItems() (int, error) {
	text := c.header(headerMaxItems)
	if text == "" {
		return 0, nil
	}
	n, err := strconv.ParseInt(text, 10, 32)
	switch {
	case err == nil && n == -1:
		return 0, nil
	case err != nil || n < 1:
		return 0, badRequest("x-ms-max-item-count is %.64q: want 1 to %d, or -1", text, math.MaxInt32)
	}
	return int(n), nil
}
