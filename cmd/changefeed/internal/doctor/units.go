package doctor

import (
	"context"
	"slices"
	"strings"

	"github.com/millrace/changefeed/cmd/changefeed/internal/items"
	"github.com/millrace/changefeed/cmd/changefeed/internal/letters"
	"github.com/millrace/changefeed/cmd/changefeed/internal/place"
	"github.com/millrace/changefeed/cmd/changefeed/internal/terminal"
	"github.com/millrace/changefeed/cmd/changefeed/internal/unit"
	"github.com/millrace/changefeed/deadletters"
	"github.com/millrace/changefeed/feed"
)

// The checks of the units of all lease containers. No list says which containers have leases or letters: their
// partition keys do, and for leases their usual name.

// mostRead is up to how many documents a container is read as a whole. A lease container has fewer.
const mostRead = 10_000

// mostLetters is how many letters of a unit are counted.
const mostLetters = 1000

// examineUnits checks the units of each database.
func (p *patient) examineUnits(ctx context.Context) {
	if p.blocked != nil {
		p.check(ctx, "units", func(context.Context) []Finding { return []Finding{p.mute("units")} })
		return
	}
	all := p.containers
	if p.At.Container != "" {
		p.check(ctx, "units", func(ctx context.Context) (found []Finding) {
			all, found = p.beside(ctx)
			return found
		})
	}
	none := true
	for _, c := range all {
		if !p.mayHaveLeases(c) {
			continue
		}
		none = false
		p.examineLeases(ctx, c, all)
	}
	if none {
		p.check(ctx, "units", func(context.Context) []Finding {
			return []Finding{good("units", "", "no lease container, so no unit")}
		})
	}
}

// beside returns the containers of the database of a single container.
func (p *patient) beside(ctx context.Context) ([]container, []Finding) {
	whole := p.At
	whole.Container = ""
	all, err := items.List(ctx, p.Opener, whole)
	if err != nil {
		return p.containers, []Finding{unclear("units", "", err)}
	}
	return all, nil
}

// mayHaveLeases reports whether a container may be a lease container. If the address is that of a lease container, no
// other one is looked at.
func (p *patient) mayHaveLeases(c items.Container) bool {
	if !isLeaseKey(c) {
		return false
	}
	if p.At.Container != "" && len(p.containers) == 1 && isLeaseKey(p.containers[0]) {
		return c.Name == p.containers[0].Name
	}
	return idOf(c) == unit.DefaultContainer || c.Documents != nil && *c.Documents <= mostRead
}

// isLeaseKey reports whether a container has a partition key of lease containers.
func isLeaseKey(c items.Container) bool {
	return len(c.Paths) == 1 && (c.Paths[0] == "/id" || c.Paths[0] == "/partitionKey")
}

// idOf returns the name of a container in its database.
func idOf(c items.Container) string {
	_, id, _ := strings.Cut(c.Name, "/")
	return id
}

// examineLeases checks the units of a lease container; all are the containers where letters may be.
func (p *patient) examineLeases(ctx context.Context, c items.Container, all []items.Container) {
	at := p.addressOf(c)
	var units []unit.Unit
	p.check(ctx, "units", func(ctx context.Context) (found []Finding) {
		var err error
		survey := unit.Surveyor{Intended: p.Intended}
		if units, err = survey.Survey(ctx, p.Opener, at); err != nil {
			return []Finding{unclear("units", c.Name, err)}
		}
		units, found = p.sort(c, units)
		return found
	})
	for i := range units {
		u := &units[i]
		p.check(ctx, "leases", func(context.Context) []Finding { return judgeLeases(u) })
		p.check(ctx, "instances", func(context.Context) []Finding { return judgeInstances(u) })
		p.check(ctx, "lag", func(context.Context) []Finding { return []Finding{judgeLag(u)} })
		p.check(ctx, "held", func(context.Context) []Finding { return []Finding{judgeHeld(u)} })
		for _, box := range all {
			if slices.Equal(box.Paths, []string{deadletters.KeyPath}) && p.addressOf(box).Database == at.Database {
				p.check(ctx, "letters", func(ctx context.Context) []Finding {
					return []Finding{p.countLetters(ctx, u, box, at)}
				})
			}
		}
	}
}

// sort leaves the units that are examined, and returns the findings about the lease container as a whole.
func (p *patient) sort(c items.Container, all []unit.Unit) (units []unit.Unit, found []Finding) {
	var strays *unit.Unit
	for i, u := range all {
		switch {
		case u.Processor == "":
			strays = &all[i]
		case p.At.Container == "" || isLeaseKey(p.containers[0]) || u.Container == p.At.Name():
			units = append(units, u)
		}
	}
	isLeases := len(all) > 0 && all[0].Processor != "" || idOf(c) == unit.DefaultContainer || p.At.Container == idOf(c)
	isRecord := func(r unit.Row) bool { return r.Stray.Prefix != "" }
	if !isLeases && (strays == nil || !slices.ContainsFunc(strays.Rows, isRecord)) {
		return nil, nil // a container of documents, which happens to have the partition key
	}
	var names []string
	for i := range units {
		names = append(names, nameOf(&units[i]))
	}
	text := "none"
	if len(names) > 0 {
		text = terminal.Count(len(names), "unit") + ": " + some(names)
	}
	found = append(found, good("units", c.Name, "%s", text))
	if strays != nil {
		found = append(found, judgeStrays(c.Name, p.addressOf(c).String(), strays)...)
	}
	return units, append(found, judgeNames(p.addressOf(c).String(), units)...)
}

// countLetters counts the dead letters of a unit in a container.
func (p *patient) countLetters(ctx context.Context, u *unit.Unit, box items.Container, leases place.Address) Finding {
	const check = "letters"
	commands := u.Commands
	commands.Letters = p.addressOf(box).String()
	see := commands.Complete("see changefeed dlq list")
	if u.Processor == unit.Unnamed {
		return unknown(check, nameOf(u), "the letters of a unit without a name have the name of its function", see)
	}
	if box.Documents == nil || *box.Documents > mostRead {
		return unknown(check, nameOf(u), box.Name+" may have too many documents to count", see)
	}
	source := p.At
	var ok bool
	if source.Database, source.Container, ok = place.ParseName(u.Container); !ok {
		return unknown(check, nameOf(u), "the container has an odd name", see)
	}
	q := letters.Query{Name: u.Processor, Source: source.String(), Leases: leases.String()}
	_, all, err := q.Read(ctx, p.Opener, letters.Place{Address: p.addressOf(box)})
	if err != nil {
		return unclear(check, nameOf(u), err)
	}
	count, n := map[feed.Disposition]int{}, 0
	for l, err := range all {
		if err != nil {
			return unclear(check, nameOf(u), err)
		}
		if n++; n > mostLetters {
			break
		}
		count[l.Disposition]++
	}
	return judgeLetters(nameOf(u), box.Name, commands, count, n > mostLetters)
}
