package migration

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/cmd/changefeed/internal/terminal"
	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/cosmosdb/pkey"
)

// Plan says what a copy would do.
type Plan struct {
	Source     string   `json:"source" about:"address"`
	Target     string   `json:"target" about:"address"`
	Creates    bool     `json:"creates_target" about:"the target does not exist, and would be created"`
	SourceKeys []string `json:"source_key" about:"paths of the partition key"`
	TargetKeys []string `json:"target_key" about:"paths of the partition key"`
	Documents  *int64   `json:"documents" about:"items of the source; null if unknown"`
	Unit       string   `json:"unit" about:"name of the unit"`
	Leases     string   `json:"leases" about:"address of the lease container"`
	Deletes    string   `json:"deletes" about:"followed, soft, or unseen"`
	Warnings   []string `json:"warnings" about:"limits of this copy"`
	Tried      int      `json:"tried" about:"items that were mapped, and not written"`
	Becoming   int      `json:"becoming" about:"documents that these items become"`
	Failing    int      `json:"failing" about:"items of them that can never be copied"`
	First      string   `json:"first_failing" about:"why the first of them fails; empty if there is none"`
}

// ReportedAs implements [report.Value].
func (Plan) ReportedAs() string { return "copy_plan" }

const triedItems = 1000

// describe reports what the copy would do, and writes nothing.
func (c *Copy) describe(ctx context.Context, opened *containers) error {
	p := Plan{
		Source: opened.source.Address.String(), Target: opened.targetAt.String(), SourceKeys: opened.source.KeyPaths(),
		Unit: c.unitName(opened), Deletes: "unseen", Warnings: append([]string{}, c.warnings(opened)...),
	}
	switch {
	case opened.seesDeletes():
		p.Deletes = "followed"
	case c.DeletedWhen != "":
		p.Deletes = "soft"
	}
	if opened.target == nil {
		p.Creates, p.TargetKeys, opened.isPlanned = true, c.Create, true
		paths, err := pkey.ParsePaths(c.Create)
		if err != nil {
			return err
		}
		unmade := *opened.source.Container
		unmade.Address = opened.targetAt
		unmade.Local = nil
		if opened.targetAt.Dir != "" {
			unmade.Local = opened.source.Local // of the kind of the target
		}
		opened.target = &side{Container: &unmade, paths: paths, ttl: opened.source.ttl}
	} else {
		p.TargetKeys = opened.target.KeyPaths()
	}
	leases, err := c.leaseAddress(opened)
	if err != nil {
		return err
	}
	p.Leases = leases.String()
	if err := c.claimUnits(ctx, opened, leases); err != nil {
		return err
	}
	if counter, ok := opened.source.sources.(feed.Counter); ok {
		start := feed.Position{Start: feed.FromBeginning()}
		all, err := counter.Pending(ctx, feed.FullRange(), start, feed.ReadOptions{})
		if err == nil {
			p.Documents = &all.Items
		} else if !errors.Is(err, errors.ErrUnsupported) {
			return err
		}
	}
	if err := c.try(ctx, opened, &p); err != nil {
		return err
	}
	return c.Report.Object(p, p.write)
}

// try maps the first items of the source.
func (c *Copy) try(ctx context.Context, opened *containers, p *Plan) error {
	m, err := c.mapper(opened)
	if err != nil {
		return err
	}
	var versions []document
	var names []string
	start := feed.Position{Start: feed.FromBeginning()}
	source := opened.source.sources
	for page, err := range changefeed.Pull(ctx, source, feed.FullRange(), start, changefeed.PullOptions{}) {
		if err != nil {
			return err
		}
		for _, ch := range page.Changes[:min(len(page.Changes), triedItems-len(versions))] {
			versions = append(versions, document{ch.Body, ch.ETag, ch.Time})
			names = append(names, nameOf(ch.PartitionKey, ch.ID))
		}
		if len(versions) == triedItems {
			break
		}
	}
	maps, err := m.apply(ctx, versions, false)
	for i, one := range maps {
		p.Becoming += len(one.documents)
		if one.err == nil {
			continue
		}
		if p.Failing++; p.First == "" {
			p.First = fmt.Sprintf("%s: %v", names[i], one.err)
		}
	}
	p.Tried = len(versions)
	return err
}

// write writes the plan for people.
func (p Plan) write(w io.Writer) error {
	count := "an unknown number of items"
	if p.Documents != nil {
		count = terminal.Count(*p.Documents, "item")
	}
	target := p.Target + ", partitioned by " + strings.Join(p.TargetKeys, ",")
	if p.Creates {
		target += ", which would be created"
	}
	var b strings.Builder
	fmt.Fprintf(&b, "from:    %s, partitioned by %s, with %s\nto:      %s\nleases:  %s, unit %s\ndeletes: %s\n",
		p.Source, strings.Join(p.SourceKeys, ","), count, target, p.Leases, p.Unit, p.Deletes)
	fmt.Fprintf(&b, "tried:   %s, which become %s; %s can never be copied\n", terminal.Count(p.Tried, "item"),
		terminal.Count(p.Becoming, "document"), terminal.Number(p.Failing))
	if p.First != "" {
		fmt.Fprintf(&b, "         %s\n", terminal.OneLine(p.First))
	}
	for _, text := range p.Warnings {
		fmt.Fprintf(&b, "warning: %s\n", text)
	}
	b.WriteString("nothing was written\n")
	_, err := io.WriteString(w, b.String())
	return err
}
