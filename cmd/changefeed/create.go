package main

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/millrace/changefeed/cmd/changefeed/internal/arg"
	"github.com/millrace/changefeed/cmd/changefeed/internal/terminal"
	"github.com/millrace/changefeed/cmd/changefeed/internal/usage"
	"github.com/millrace/changefeed/docstore"
)

// The bounds of a container in a store, and on changefeed serve.
const (
	maxPaths  = 3 // of the partition key
	maxRanges = 1000
)

// containerFlags are the flags that describe a new container, of import and create.
type containerFlags struct {
	pk        []string
	ranges    int
	ttl       arg.TTL
	retention time.Duration
}

// register adds the flags to a command.
func (c *containerFlags) register(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringSliceVar(&c.pk, "pk", nil,
		"`path` of the partition key of a new container; up to three for a hierarchical key")
	f.IntVar(&c.ranges, "ranges", 1, "physical partitions of a new container, in a store or on changefeed serve")
	f.Var(&c.ttl, "ttl",
		"time to live in a new container, such as 3600 or 1h; with -1 only documents with a ttl expire")
	f.DurationVar(&c.retention, "retention", 0,
		"how long a new container keeps all versions and deletes")
}

// check refuses impossible settings of a container.
func (c *containerFlags) check() error {
	for _, path := range c.pk {
		if !strings.HasPrefix(path, "/") {
			return usage.Flag("pk", path, "a path such as /"+cmp.Or(path, "city"))
		}
	}
	switch {
	case len(c.pk) > maxPaths:
		return usage.Flag("pk", strings.Join(c.pk, ","), fmt.Sprintf("1 to %d paths", maxPaths))
	case c.ranges < 1 || c.ranges > maxRanges:
		return usage.Flag("ranges", strconv.Itoa(c.ranges), fmt.Sprintf("1 to %d", maxRanges))
	case c.retention < 0:
		return usage.Flag("retention", terminal.Exact(c.retention), "0 or more, such as 24h")
	}
	return nil
}

// spec returns the container that the flags describe.
func (c *containerFlags) spec() docstore.ContainerSpec {
	return docstore.ContainerSpec{Paths: c.pk, Ranges: c.ranges, DefaultTTL: c.ttl.Seconds, Retention: c.retention}
}
