package demo

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/millrace/changefeed/cmd/changefeed/internal/terminal"
	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/pause"
	"github.com/millrace/changefeed/internal/proof/fleet"
)

// The scenes of the demo: an instance joins, another is killed, a range is split. They happen after fixed parts of
// the demo's time, so a long demo has the same scenes. Each scene waits for its own result. So on a slow machine the
// scenes are later, but never overlap.

// scene is something that happens after a part of the demo's time.
type scene struct {
	at   float64
	play func(*performance, context.Context) error
}

var scenes = []scene{
	{0.2, (*performance).startAnother},
	{0.4, (*performance).killInstance},
	{0.75, (*performance).splitFirstRange},
}

const (
	cast     = 3 // instances at the beginning
	newcomer = "host-4"
	victim   = "host-2"
	auditor  = "auditor"
)

// playAll starts the writers, plays the scenes, and waits until all changes have been handled.
func (d *performance) playAll(ctx context.Context) error {
	for n := range cast {
		if err := d.startInstance(ctx, fmt.Sprintf("host-%d", n+1)); err != nil {
			return err
		}
	}
	if _, err := d.fleet.Balanced(ctx, cast); err != nil {
		return err
	}
	d.screen.writeEvent("%d clerks begin to write", clerks)
	begun := time.Now()
	t := newTraffic(ctx, d.orders, d.ledger)
	err := d.withBoard(ctx, func() error {
		err := d.playScenes(ctx, begun)
		if err == nil {
			err = pause.For(ctx, time.Until(begun.Add(d.length)))
		}
		// A demo that the user interrupts ends, but has not failed.
		early := ctx.Err() != nil
		if early {
			err = nil
			d.screen.writeEvent("stopping early")
		}
		err = errors.Join(err, t.stop())
		written, _ := d.ledger.Totals()
		d.screen.writeEvent("the clerks have stopped after %d writes", written)
		if d.screen.readerError() != nil {
			return err
		}
		return errors.Join(err, d.waitUntilHandled(context.WithoutCancel(ctx)))
	})
	return err
}

// playScenes plays the scenes.
func (d *performance) playScenes(ctx context.Context, begun time.Time) error {
	for _, s := range scenes {
		if err := pause.For(ctx, time.Until(begun.Add(time.Duration(s.at*float64(d.length))))); err != nil {
			return err
		}
		if err := s.play(d, ctx); err != nil {
			return err
		}
	}
	return nil
}

// startAnother starts another instance, which must get its share of the leases at once.
func (d *performance) startAnother(ctx context.Context) error {
	if err := d.startInstance(ctx, newcomer); err != nil {
		return err
	}
	took, err := d.fleet.Balanced(ctx, cast+1)
	if err != nil {
		return err
	}
	// Rounded up, because a round that has begun counts.
	d.rounds = new(int((took + acquireEvery - 1) / acquireEvery))
	d.screen.writeEvent("%s has its share after %v", newcomer, took.Round(time.Millisecond))
	return nil
}

// killInstance ends an instance without releasing its leases.
func (d *performance) killInstance(ctx context.Context) error {
	records, _, err := d.fleet.Leases.List(ctx)
	if err != nil {
		return err
	}
	var held []string
	for _, record := range records {
		if record.Kind == feed.KindLease && record.Owner == victim {
			held = append(held, record.Token)
		}
	}
	d.screen.writeEvent("killing %s without a goodbye, with %s in its hands", victim,
		terminal.Count(len(held), "lease"))
	// The ledger records the kill first, so a batch that the victim finishes from now on counts as failed, and comes
	// again on another instance.
	d.ledger.Kill(victim, held)
	all := d.fleet.Instances()
	all[slices.IndexFunc(all, func(i *fleet.Instance) bool { return i.Name() == victim })].Kill()
	// A lease without an owner still counts as the victim's: the lease was freed, but no instance has taken the lease
	// yet.
	took, err := d.fleet.Until(ctx, "take over from "+victim, func(owners map[string]int) bool {
		return owners[victim]+owners[""] == 0
	})
	if err != nil {
		return err
	}
	d.ledger.Adopt()
	d.takeover = &took
	d.screen.writeEvent("the others have all leases of %s after %v", victim, took.Round(time.Millisecond))
	return nil
}

// splitFirstRange splits the first range.
func (d *performance) splitFirstRange(ctx context.Context) error {
	partitions, err := d.orders.Partitions(ctx)
	if err != nil {
		return err
	}
	first := partitions[0]
	d.screen.writeEvent("splitting range %s", first.Range.String())
	children, err := d.orders.Split(ctx, first.ID)
	if err != nil {
		return err
	}
	// The split is over for every instance when two leases have replaced the old lease, and each lease has an owner.
	took, err := d.fleet.Until(ctx, "replace the lease of the range", func(owners map[string]int) bool {
		n := 0
		for _, held := range owners {
			n += held
		}
		return owners[""] == 0 && n == len(partitions)+1
	})
	if err != nil {
		return err
	}
	var ranges []string
	for _, c := range children {
		ranges = append(ranges, c.Range.String())
	}
	d.screen.writeEvent("%s have leases of their own after %v", strings.Join(ranges, " and "),
		took.Round(time.Millisecond))
	return nil
}

// waitUntilHandled waits until all acknowledged writes have been handled.
func (d *performance) waitUntilHandled(ctx context.Context) error {
	end := time.Now().Add(patience)
	for d.ledger.Open() > 0 && time.Now().Before(end) {
		if err := pause.For(ctx, lookEvery); err != nil {
			return err
		}
	}
	if n := d.ledger.Open(); n > 0 {
		d.screen.writeEvent("%d documents have not arrived after %v", n, patience)
	}
	return nil
}

// auditAfterStop stops all instances gracefully and starts a new instance. The new instance should receive no changes,
// because all positions should be stored.
func (d *performance) auditAfterStop(ctx context.Context) error {
	d.screen.writeEvent("all instances stop, and another one looks whether anything comes again")
	if err := d.fleet.Stop(); err != nil {
		return err
	}
	if err := d.startInstance(ctx, auditor); err != nil {
		return err
	}
	if _, err := d.fleet.Balanced(ctx, 1); err != nil {
		return err
	}
	if err := pause.For(ctx, acquireEvery); err != nil {
		return err
	}
	return d.fleet.Stop()
}

// withBoard shows the table while f runs.
func (d *performance) withBoard(ctx context.Context, f func() error) error {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var showing sync.WaitGroup
	showing.Go(func() { newBoard(d).keepUpToDate(ctx) })
	err := f()
	cancel()
	showing.Wait()
	d.screen.replaceTable(nil)
	return err
}
